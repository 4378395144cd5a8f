"""Field types and limits that several schemas share."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_ID = 2**31 - 1
"""Largest database id."""
MAX_NAME = 100
"""Characters in a labeler's name."""
MAX_PAGE = 200
"""Rows on one page of a long list."""
MAX_CURSOR = 200

CURSOR = "^[A-Za-z0-9_=-]*$"
NO_NULL = "^[^\\x00]*$"
"""Excludes the one character that not every database can store or compare."""

Role = Literal["owner", "labeler", "teacher"]
GrantedRole = Literal["owner", "labeler"]

Number = float | None
"""None if the value is missing or not finite."""
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class StrictRequest(BaseModel):
    """Request body that rejects unknown fields, so that a misspelt setting is not ignored."""

    model_config = ConfigDict(extra="forbid")
