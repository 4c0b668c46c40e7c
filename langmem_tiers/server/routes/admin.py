"""Endpoints that tell how the server and the optimizer stand."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from langmem_tiers.server import response_models
from langmem_tiers.server.dependencies import CurrentRequest, run_in_thread_pool
from langmem_tiers.server.error_responses import Problem
from langmem_tiers.server.pagination import decode_cursor, encode_cursor
from langmem_tiers.server.request_models import CursorQuery, LimitQuery, NamespaceQuery, NamespaceRequest  # noqa: TC001 - read at run time
from langmem_tiers.server.serializers import serialize_optimizer_run, serialize_optimizer_status
from langmem_tiers.server.thread_pools import JobClass
from langmem_tiers.version import __version__

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
@run_in_thread_pool(JobClass.MONITOR)
def get_health(desk: CurrentRequest) -> response_models.HealthResponse:
    """Whether the server answers, and its database too."""
    desk.engine.namespaces(limit=1)
    return response_models.HealthResponse(status="ok", version=__version__, database=desk.engine.backend)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
@run_in_thread_pool(JobClass.MONITOR)
def get_metrics(desk: CurrentRequest) -> Response:
    """Figures for Prometheus. They are of the whole database: a token that is bound to a namespace may not ask."""
    if desk.token_scope.is_token_bound:
        raise Problem(403, "forbidden", "figures are of all namespaces, and this token is of one")
    if desk.app_state.registry is None:
        raise Problem(404, "not_found", "there are no figures: pip install 'langmem-tiers[metrics]'")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return Response(generate_latest(desk.app_state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/learning/optimizer/status")
@run_in_thread_pool()
def get_optimizer_status(
    desk: CurrentRequest, namespace: NamespaceQuery = None
) -> response_models.OptimizerStatus:
    """What the optimizer achieved in a namespace, and the parameters in force."""
    return serialize_optimizer_status(desk.engine.optimizer.report(desk.require_namespace(namespace).path))


@router.get("/learning/optimizer/history")
@run_in_thread_pool()
def list_optimizer_runs(
    desk: CurrentRequest, namespace: NamespaceQuery = None, limit: LimitQuery = 50, cursor: CursorQuery = None
) -> response_models.PageResponse[response_models.OptimizerRun]:
    """The runs of the optimizer, newest first."""
    place = decode_cursor("history", cursor, int)
    before = None if place is None else int(place[0])
    page = desk.engine.optimizer.page(desk.require_namespace(namespace).path, before=before, limit=limit)
    more = None if page.next_before is None else encode_cursor("history", page.next_before)
    return response_models.PageResponse(
        items=[serialize_optimizer_run(one) for one in page.snapshots], next=more
    )


@router.post("/learning/optimizer/run")
@run_in_thread_pool(JobClass.LONG, writes=True)
def run_optimizer(desk: CurrentRequest, asked: NamespaceRequest) -> response_models.OptimizerRun:
    """Tidy the sessions of a namespace that changed since the last run, and adapt the parameters."""
    done = desk.engine.optimizer.run(desk.require_namespace(asked.namespace).path)
    if done is None:
        raise Problem(409, "conflict", "another process is optimizing this namespace: ask again later")
    return serialize_optimizer_run(done)
