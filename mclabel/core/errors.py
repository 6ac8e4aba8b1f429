"""Errors that a user can see. Each message gives the value, the rule and the remedy."""

from dataclasses import dataclass


class MclabelError(Exception):
    """A failure with a message for the user; the command line prints it and exits with 2."""


class ConfigError(MclabelError):
    """A configuration that cannot be used. The message lists all of its faults."""


class DataError(MclabelError):
    """Input data that cannot be read, or that breaks a rule."""


class EngineError(MclabelError):
    """A policy's engine that cannot be loaded, rejects a request or died."""


class UntrustedCodeError(EngineError):
    """Code in a model's folder, or named by its files, that the user has not allowed to run."""

    def __init__(self, refusal: str, option: str) -> None:
        """Args:
        refusal: clause that names the model and the code that does not run.
        option: command line option that allows the code; empty if the command has no such option.
        """
        super().__init__(refusal, option)

    def __str__(self) -> str:
        refusal, option = self.args
        if not option:
            return f"{refusal}. Here it cannot be allowed: give a model without such code"
        return f"{refusal}. If you have read it and trust it: {option}"


class RequestFailed(EngineError):
    """A request that a server did not answer or rejected."""


class BadAnswer(RequestFailed):
    """A server's unusable answer to one request; other requests may still succeed."""


class EngineDied(EngineError):
    """An engine that died during its work. Its blocks are leased again, to another engine."""


class ComponentError(MclabelError):
    """A third-party component that fails, hangs or breaks its protocol."""

    trace = ""
    """Traceback of the component's error, as text, because text can be sent between processes."""


class CheckerError(MclabelError):
    """A checker that fails on every answer."""


class ShardError(MclabelError):
    """Shards that are missing, incomplete, of another version or of another run."""


class DamagedFile(ShardError):
    """A file of a run that is missing or differs from the file that was written."""

    def __init__(self, location: str, name: str, fault: str, remedy: str) -> None:
        """Args:
        location: folder or URL of the run.
        name: name of the file in that folder.
        fault: description of the damage, as a clause.
        remedy: what the user should do, as a sentence.
        """
        super().__init__(location, name, fault, remedy)
        self.name, self.fault, self.remedy = name, fault, remedy
        self._location = location

    def __str__(self) -> str:
        return f"{self._location}/{self.name}: {self.fault}. {self.remedy}"


class TrainingError(MclabelError):
    """A training run that cannot continue."""


MAX_DETAIL = 500
"""Maximum number of characters of `RejectReason.detail`, which may quote data of any length."""


@dataclass(frozen=True, slots=True)
class RejectReason:
    """The reason why a row or a problem cannot be used."""

    reason: str
    """A short code."""
    detail: str


def bound_detail(detail: str) -> str:
    """Return the detail on one line, at most `MAX_DETAIL` characters."""
    text = " ".join(detail.split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
