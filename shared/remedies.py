"""What to do about the reason for which a task is held or stopped: for the status, the dashboard and the alerts."""

from typing import NamedTuple


class Remedy(NamedTuple):
    """One row: its name in metrics and on docs/status.md, phrases of the reasons that it is for, and what to do."""

    name: str
    phrases: tuple[str, ...]
    text: str

    def of(self, task: str) -> str:
        """Return what to do about *task*."""
        return self.text.replace("TASK", task)


REMEDIES = (
    Remedy(
        "full",
        ("quota is exceeded",),
        "start the consumers of the target, or make it larger; its dead letters count too. Batches then go on",
    ),
    Remedy("disabled", ("is disabled",), "set the entity to Active; batches then go on"),
    Remedy("missing", ("does not exist", "has no secret with this name"), "create it: busway plan, busway apply --yes"),
    Remedy(
        "earlier hub",
        ("the hub was created again",),
        "stop the app, then busway checkpoints TASK --reset --yes, and start it again",
    ),
    Remedy("firewall", ("firewall",), "admit the app's addresses or its subnet in the network rules of the namespace"),
    Remedy(
        "credentials",
        ("has expired", "the key is wrong", "token is for another", "got no token", "is not a connection string"),
        "correct the app setting or the secret that the connection names, or the clock of the machine",
    ),
    Remedy(
        "rights",
        ("may not", "right to", "keys are switched off", "permission", "denies access", "to have the role"),
        "give the app's identity the role that is missing (busway docs security); it takes some minutes",
    ),
    Remedy(
        "connections",
        ("as many links", "as many tokens", "as many connections"),
        "end other clients of the namespace, or give each app its own connection",
    ),
    Remedy(
        "rejects in a row",
        ("in a row",),
        "busway rejects list TASK; correct the sender or the task, then restart the app",
    ),
    Remedy(
        "busy",
        ("is busy", "could not process"),
        "nothing: batches go on by themselves. If it lasts, give the namespace more units",
    ),
    Remedy(
        "away",
        ("cannot be reached", "not answer", "no answer", "has not answered"),
        "nothing is lost, and batches go on when it answers. If it lasts: busway failover switch, or busway pause TASK",
    ),
    Remedy(
        "no instance",
        ("no instance",),
        "does the app run? az functionapp show --query state, then busway functions; look for exceptions of the host",
    ),
)
OTHERWISE = Remedy("other", (), "read the log of the app for TASK, then busway docs troubleshooting")


def remedy_for(reason: str) -> Remedy:
    """Return the first remedy for the words of *reason*."""
    return next((remedy for remedy in REMEDIES if any(phrase in reason for phrase in remedy.phrases)), OTHERWISE)
