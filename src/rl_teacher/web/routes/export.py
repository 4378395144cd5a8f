"""Streaming export of labels."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from rl_teacher.report.label_export import ENCODERS, label_rows
from rl_teacher.web.access import Access, LabelerName, requires
from rl_teacher.web.services import ServicesDep

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}

router = APIRouter(prefix="/api/v1", tags=["studies"])


@router.get(
    "/experiments/{name}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {each: {} for each in MEDIA_TYPES.values()}}},
)
@requires(Access.OWNER)
def export_labels(
    name: str,
    services: ServicesDep,
    owner: LabelerName,
    format: Annotated[Literal["jsonl", "parquet"], Query()] = "jsonl",  # noqa: A002
) -> StreamingResponse:
    """Export every label with its labeler, time, side and whether it is current."""
    view = services.experiments.find(name)
    parts = ENCODERS[format](label_rows(services.store, view.name))
    owner_id = services.store.labelers.id_of(owner)
    services.store.events.record("export", {"format": format}, view.id, owner_id)
    file_name = quote(f"{view.name}-labels.{format}", safe="")
    return StreamingResponse(
        parts,
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{file_name}"},
    )
