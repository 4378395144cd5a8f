"""Management of labelers from the command line: `rl-teacher labelers`."""

from dataclasses import dataclass
from datetime import timedelta

from rl_teacher.common.errors import BadInput
from rl_teacher.runs.folder import home
from rl_teacher.store.access import check_scope
from rl_teacher.store.database import default_url
from rl_teacher.store.records import LabelerView
from rl_teacher.store.store import Store, utc_now
from rl_teacher.web.address import credential_link, running_service

ROLES = ("labeler", "owner")
LONGEST_DAYS = 3_650


@dataclass(frozen=True)
class NewCredential:
    """New labeler with a credential that cannot be read again.

    Attributes:
        name: Stored name.
        credential: Bearer token for programs.
        link: Login link; None while no service runs.
    """

    name: str
    credential: str
    link: str | None

    def __repr__(self) -> str:
        return f"NewCredential(name={self.name!r})"


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
    if role not in ROLES:
        raise BadInput(f"--role {role} was given; {' or '.join(ROLES)} is possible.")
    if days is not None and not 0 < days <= LONGEST_DAYS:
        raise BadInput(f"--days {days:g} was given; more than 0 and up to {LONGEST_DAYS} can be.")
    expires_at = None if days is None else utc_now() + timedelta(days=days)
    with open_store() as store:
        check_scope(role, experiment)
        if experiment is not None:
            store.experiments.get(experiment)
        labeler_id = store.labelers.add(name, role)
        kept = next(each.name for each in store.labelers.all() if each.id == labeler_id)
        credential = store.access.issue_credential(kept, expires_at, experiment)
    service = running_service()
    link = None if service is None else credential_link(service, credential, experiment)
    return NewCredential(kept, credential, link)


def list_labelers() -> list[LabelerView]:
    """List all labelers."""
    with open_store() as store:
        return store.labelers.all()


def revoke(name: str) -> int:
    """Revoke all credentials of a labeler, keep the labels, and return the number revoked.

    Raises:
        LabelerNotFound: No labeler has this name.
    """
    with open_store() as store:
        return store.access.revoke_credentials(name)


def open_store() -> Store:
    """Open the store of the home."""
    return Store.open(default_url(home()))
