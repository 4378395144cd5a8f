"""New labelers and invites from the command line: `rl-teacher labelers`."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import open_store
from rl_teacher.store.access import LONGEST_DAYS
from rl_teacher.store.labelers import LABELER_ROLES
from rl_teacher.store.store import utc_now
from rl_teacher.web.address import credential_path, database_id, invite_path, running_service


@dataclass(frozen=True)
class NewCredential:
    """New labeler with a credential that cannot be read again.

    Attributes:
        name: Stored name.
        credential: Bearer token for programs.
        link: Login link; None while no service runs.
    """

    name: str
    credential: str = field(repr=False)
    link: str | None = field(repr=False)


def add(name: str, role: str, days: float | None, experiment: str | None = None) -> NewCredential:
    """Add a labeler with a new credential.

    Args:
        name: Name of the labeler.
        role: `labeler` or `owner`.
        days: Lifetime of the credential; None to keep it valid until it is revoked.
        experiment: Experiment that the labeler is limited to; None for all.

    Raises:
        LabelerExists: The name is taken.
        ExperimentNotFound: No experiment has this name.
        BadInput: The name or lifetime is invalid, or an owner is limited to one experiment.
    """
    if role not in LABELER_ROLES:
        raise BadInput(f"--role {role} was given; it must be {' or '.join(LABELER_ROLES)}.")
    expires_at = None if days is None else expiry(days)
    with open_store() as store:
        identity, credential = store.access.add_labeler(name, role, expires_at, experiment)
    service = running_service(database_id())
    link = None if service is None else service.url + credential_path(credential, experiment)
    return NewCredential(identity.name, credential, link)


def invite(uses: int, days: float, experiment: str | None = None) -> str:
    """Create an invite and return its link, or its path while no service runs.

    Args:
        uses: Number of people whom it admits.
        days: Lifetime of the invite.
        experiment: Experiment that the labelers are limited to; None for all.

    Raises:
        ExperimentNotFound: No experiment has this name.
        BadInput: The lifetime or number of uses is invalid.
    """
    expires_at = expiry(days)
    with open_store() as store:
        _, token = store.access.invite(experiment=experiment, expires_at=expires_at, max_uses=uses)
    service = running_service(database_id())
    return ("" if service is None else service.url) + invite_path(token)


def expiry(days: float) -> datetime:
    """Return the time in so many days.

    Raises:
        BadInput: The number is out of range.
    """
    if not 0 < days <= LONGEST_DAYS:
        raise BadInput(
            f"--days {days:g} was given; it must be more than 0 and at most {LONGEST_DAYS}."
        )
    return utc_now() + timedelta(days=days)
