"""Endpoints that tell how the server and the optimizer stand."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from langmem_tiers.server import response_models
from langmem_tiers.server.dependencies import AtDesk, in_thread
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.pagination import cursor_of, place_of
from langmem_tiers.server.request_models import Ask, Cursor, InNamespace, Limit  # noqa: TC001 - read at run time
from langmem_tiers.server.serializers import run_of, status_of
from langmem_tiers.server.thread_pools import Pace
from langmem_tiers.version import __version__

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
@in_thread(Pace.WATCH)
def health(desk: AtDesk) -> response_models.Health:
    """Whether the server answers, and its database too."""
    desk.engine.namespaces(limit=1)
    return response_models.Health(status="ok", version=__version__, database=desk.engine.backend)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
@in_thread(Pace.WATCH)
def metrics(desk: AtDesk) -> Response:
    """Figures for Prometheus. They are of the whole database: a token that is bound to a namespace may not ask."""
    if desk.reach.is_bound:
        raise Problem(403, "forbidden", "figures are of all namespaces, and this token is of one")
    if desk.served.registry is None:
        raise Problem(404, "not_found", "there are no figures: pip install 'langmem-tiers[metrics]'")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return Response(generate_latest(desk.served.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/learning/optimizer/status")
@in_thread()
def optimizer_status(desk: AtDesk, namespace: InNamespace = None) -> response_models.OptimizerStatus:
    """What the optimizer achieved in a namespace, and the parameters in force."""
    return status_of(desk.engine.optimizer.report(desk.there(namespace).path))


@router.get("/learning/optimizer/history")
@in_thread()
def optimizer_history(
    desk: AtDesk, namespace: InNamespace = None, limit: Limit = 50, cursor: Cursor = None
) -> response_models.Page[response_models.OptimizerRun]:
    """The runs of the optimizer, newest first."""
    place = place_of("history", cursor, int)
    before = None if place is None else int(place[0])
    page = desk.engine.optimizer.page(desk.there(namespace).path, before=before, limit=limit)
    more = None if page.next_before is None else cursor_of("history", page.next_before)
    return response_models.Page(items=[run_of(one) for one in page.snapshots], next=more)


@router.post("/learning/optimizer/run")
@in_thread(Pace.LONG, writes=True)
def optimizer_run(desk: AtDesk, asked: Ask) -> response_models.OptimizerRun:
    """Tidy the sessions of a namespace that changed since the last run, and adapt the parameters."""
    done = desk.engine.optimizer.run(desk.there(asked.namespace).path)
    if done is None:
        raise Problem(409, "conflict", "another process is optimizing this namespace: ask again later")
    return run_of(done)
