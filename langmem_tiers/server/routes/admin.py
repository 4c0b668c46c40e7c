"""Routes for the state of the server and for the optimizer."""

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
def get_health(context: CurrentRequest) -> response_models.HealthResponse:
    """Check that the server and its database answer."""
    context.engine.namespaces(limit=1)
    return response_models.HealthResponse(status="ok", version=__version__, database=context.engine.backend)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
@run_in_thread_pool(JobClass.MONITOR)
def get_metrics(context: CurrentRequest) -> Response:
    """Return the metrics for Prometheus. They cover all namespaces, so a token for one namespace is rejected."""
    if context.token_scope.is_token_bound:
        raise Problem(403, "forbidden", "metrics cover all namespaces, but this token is for one of them")
    if context.app_state.registry is None:
        raise Problem(404, "not_found", "metrics are not available: pip install 'langmem-tiers[metrics]'")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return Response(generate_latest(context.app_state.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/learning/optimizer/status")
@run_in_thread_pool()
def get_optimizer_status(
    context: CurrentRequest, namespace: NamespaceQuery = None
) -> response_models.OptimizerStatus:
    """Return the results of the optimizer in a namespace and the current parameters."""
    return serialize_optimizer_status(
        context.engine.optimizer.report(context.require_namespace(namespace).path)
    )


@router.get("/learning/optimizer/history")
@run_in_thread_pool()
def list_optimizer_runs(
    context: CurrentRequest,
    namespace: NamespaceQuery = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> response_models.PageResponse[response_models.OptimizerRun]:
    """List the runs of the optimizer, newest first."""
    position = decode_cursor("history", cursor, int)
    before = None if position is None else int(position[0])
    page = context.engine.optimizer.page(
        context.require_namespace(namespace).path, before=before, limit=limit
    )
    next_cursor = None if page.next_before is None else encode_cursor("history", page.next_before)
    return response_models.PageResponse(
        items=[serialize_optimizer_run(snapshot) for snapshot in page.snapshots], next=next_cursor
    )


@router.post("/learning/optimizer/run")
@run_in_thread_pool(JobClass.LONG, writes=True)
def run_optimizer(context: CurrentRequest, body: NamespaceRequest) -> response_models.OptimizerRun:
    """Optimize the sessions of a namespace that changed since the last run, and adapt the parameters."""
    snapshot = context.engine.optimizer.run(context.require_namespace(body.namespace).path)
    if snapshot is None:
        raise Problem(409, "conflict", "another process is optimizing this namespace: try again later")
    return serialize_optimizer_run(snapshot)
