"""Errors that a user can see. Each message gives the value, the rule and the remedy."""

from dataclasses import dataclass


class MclabelError(Exception):
    """A failure with a message for the user; the command line prints it and exits with 2."""


class ConfigError(MclabelError):
    """Error if a configuration cannot be used. The message lists all of its faults."""


class DataError(MclabelError):
    """Error if input data cannot be read, or breaks a rule."""


class EngineError(MclabelError):
    """Error if a policy's engine cannot be loaded, rejects a request, or dies."""


class UntrustedCodeError(EngineError):
    """Error if a model needs code, in its folder or named by its files, that the user has not
    allowed to run.
    """

    def __init__(self, refusal: str, option: str) -> None:
        """Make the error.

        Args:
            refusal: clause that names the model and the code that does not run.
            option: command line option that allows the code; empty if the command has no such
                option.
        """
        super().__init__(refusal, option)

    def __str__(self) -> str:
        refusal, option = self.args
        if not option:
            return f"{refusal}. Here it cannot be allowed: give a model without such code"
        return f"{refusal}. If you have read it and trust it: {option}"


class RequestFailed(EngineError):
    """Error if a server rejects a request or does not respond to it."""


class UnusableResponse(RequestFailed):
    """Error if a server's response to one request is unusable; other requests may still
    succeed.
    """


class EngineDied(EngineError):
    """Error if an engine dies during its work. The blocks of items that it worked on are given to
    another engine.
    """


class ComponentError(MclabelError):
    """Error if a third-party component fails, hangs or breaks its protocol."""

    trace = ""
    """Traceback of the component's error, as text, because text can be sent between processes."""


class CheckerError(MclabelError):
    """Error if a checker fails on every answer."""


class ShardError(MclabelError):
    """Error if files of a run (shards) are missing, incomplete, of another version or of another
    run.
    """


class DamagedFile(ShardError):
    """Error if a file of a run is missing or differs from the file that was written."""

    def __init__(self, location: str, name: str, fault: str, remedy: str) -> None:
        """Make the error.

        Args:
            location: folder or URL of the run.
            name: name of the file in that folder.
            fault: description of the damage, as a clause.
            remedy: sentence with the remedy for the user.
        """
        super().__init__(location, name, fault, remedy)
        self.name, self.fault, self.remedy = name, fault, remedy
        self._location = location

    def __str__(self) -> str:
        return f"{self._location}/{self.name}: {self.fault}. {self.remedy}"


class TrainingError(MclabelError):
    """Error if a training run cannot continue."""


MAX_DETAIL = 500
"""Maximum number of characters of `RejectReason.detail`, which may quote data of any length."""


@dataclass(frozen=True, slots=True)
class RejectReason:
    """The reason why a row or a problem cannot be used."""

    reason: str
    """Short code of the reason, such as `solution_too_long`."""
    detail: str


def shorten_detail(detail: str) -> str:
    """Return a text as one line of at most `MAX_DETAIL` characters."""
    text = " ".join(detail.split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
