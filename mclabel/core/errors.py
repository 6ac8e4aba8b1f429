"""The errors a user can meet. Each message gives the value, the rule and the remedy."""

from dataclasses import dataclass


class MclabelError(Exception):
    """A failure with a message for the user; the command line prints it and exits with 2."""


class ConfigError(MclabelError):
    """A configuration that cannot be used; names every fault at once."""


class DataError(MclabelError):
    """Input data that cannot be read, or that breaks a rule."""


class EngineError(MclabelError):
    """A policy's engine that cannot be loaded, refuses its work, or died."""


class UntrustedCodeError(EngineError):
    """Code of a model, or code that its files name, that the user has not allowed to run."""

    def __init__(self, refusal: str, option: str) -> None:
        """Args:
        refusal: names the model and the code that does not run.
        option: lets it run, as given on the command line; empty where the verb has none.
        """
        super().__init__(refusal, option)

    def __str__(self) -> str:
        refusal, option = self.args
        if not option:
            return f"{refusal}. Here it cannot be allowed: give a model without such code"
        return f"{refusal}. If you have read it and trust it: {option}"


class RequestFailed(EngineError):
    """A server that gave no answer to one request, or refused it."""


class BadAnswer(RequestFailed):
    """An answer to one request that cannot be used, of a server that may answer others well."""


class EngineDied(EngineError):
    """An engine that died under its work. Another may do it: blocks are leased anew."""


class ComponentError(MclabelError):
    """A component of somebody's own that fails, hangs or breaks its protocol."""

    trace = ""
    """The traceback of what it raised, as text: it survives the way from another process."""


class CheckerError(MclabelError):
    """A checker that fails on whatever it grades."""


class ShardError(MclabelError):
    """Shards that are missing, torn, of another version or of another run."""


class DamagedFile(ShardError):
    """A file of a run that is not what was written, or is not there."""

    def __init__(self, location: str, name: str, fault: str, remedy: str) -> None:
        """Args:
        location: folder or URL of the run.
        name: name of the file in it.
        fault: the damage, as a clause.
        remedy: what the user should do, as a sentence.
        """
        super().__init__(location, name, fault, remedy)
        self.name, self.fault, self.remedy = name, fault, remedy
        self._location = location

    def __str__(self) -> str:
        return f"{self._location}/{self.name}: {self.fault}. {self.remedy}"


class TrainingError(MclabelError):
    """A training run that cannot go on."""


MAX_DETAIL = 500
"""Characters; a detail may quote data."""


@dataclass(frozen=True, slots=True)
class RejectReason:
    """Why a row or a problem cannot be used."""

    reason: str
    """A short code."""
    detail: str


def bounded(detail: str) -> str:
    """Return the detail on one line, at most `MAX_DETAIL` characters."""
    text = " ".join(detail.split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
