"""Components of every kind that break their protocol, one fault each, and correct ones.

Each broken component is the correct component with one of its parts replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = "from __future__ import annotations\nimport os, sys, time\n"


@dataclass(frozen=True)
class Case:
    """A component with one fault."""

    name: str
    part: str
    """Name of the replaced part of the correct component."""
    code: str
    """Code that replaces the part."""
    words: tuple[str, ...]
    """Words that the last line of the error must contain, besides the component's name."""


ESTIMATOR = (
    HEAD
    + '''
from mclabel.labeling.estimators import Estimator, Judgement, RolloutSettings
from mclabel.core.stats.values import estimate_fixed
from mclabel.core.records import Counts


class Own(Estimator):
    """An estimator that rolls out every prefix equally often."""

    class Settings(RolloutSettings):
        """Settings without further fields."""

    def __init__(self, settings, problem):
        self.settings, self.problem, self.asked = settings, problem, False

    def wanted(self):
        #wanted
        if self.asked:
            return []
        self.asked = True
        prefixes = {prefix for path in self.problem.paths for prefix in path.prefixes}
        return sorted(prefixes) * self.settings.rollouts

    def record(self, rollout):
        #record
        pass

    def judge(self, counts):
        #judge
        found = []
        for path in self.problem.paths:
            estimates = [estimate_fixed(counts[prefix]) for prefix in path.prefixes]
            right = path.outcome.value == "right"
            last = estimate_fixed(Counts(num_right=right, num_wrong=not right))
            hard = [None if e.value is None else e.value > 0 for e in estimates] + [right]
            found.append(self.judgement(hard, [*estimates, last]))
        return found

    def judgement(self, hard, estimates, **more):
        #judgement
        first = next((i for i, one in enumerate(hard) if one is False), None)
        return Judgement(hard=tuple(hard), sources=("own",) * len(hard), first_error=first,
                         estimates=tuple(estimates), **more)
'''
)
ESTIMATORS = (
    Case("raises", "wanted", "return {}['width']", ("wanted", "raised KeyError", "own.py:")),
    Case("gives None", "wanted", "return None", ("wanted", "gave None", "Sequence")),
    Case("gives a text", "wanted", "return 'all'", ("wanted", "'all' (str)")),
    Case("gives bools", "wanted", "return [True]", ("wanted", "[0]=True (bool)", "valid integer")),
    Case("asks outside", "wanted", "return [99]", ("wanted", "prefix 99", "0 to")),
    Case(
        "never ends",
        "wanted",
        "return [1] * 5_000",
        ("wanted asked", "16,384 rollouts of prefix 1"),
    ),
    Case("exits", "wanted", "sys.exit('enough')", ("wanted", "raised SystemExit: enough")),
    Case("raises on record", "record", "rollout.width", ("record", "raised AttributeError")),
    Case("judges too few", "judge", "return []", ("judge", "0 judgements of")),
    Case("judges None", "judge", "return None", ("judge", "gave None")),
    Case(
        "judges dicts", "judge", "return [{} for _ in self.problem.paths]", ("judge", "{} (dict)")
    ),
    Case(
        "forgets a step",
        "judgement",
        "hard = hard[:-1]",
        ("judge", "hard of", "must give one per step"),
    ),
    Case(
        "labels with ints",
        "judgement",
        "hard = [int(h or 0) for h in hard]",
        ("judge", "[0].hard[0]=1 (int)", "boolean"),
    ),
    Case(
        "puts the error outside",
        "judgement",
        "return Judgement(hard=tuple(hard), sources="
        "('own',) * len(hard), first_error=77, estimates=tuple(estimates))",
        ("first_error=77",),
    ),
    Case(
        "gives no chance",
        "judgement",
        "more = {'posterior': (2.0,) * (len(hard) + 1)}",
        ("judge", "[0].posterior[0]=2.0 (float)", "less than or equal to 1"),
    ),
)

JUDGE = (
    HEAD
    + '''
from mclabel.judge.base import Judge, JudgeSettings, Opinion
from mclabel.core.records import Flag


class Own(Judge):
    """A judge that names the second step."""

    class Settings(JudgeSettings):
        """Settings without further fields."""

    def identity_inputs(self):
        #identity_inputs
        return {}

    async def judge(self, item, ask):
        #judge
        return Opinion(is_known=True, first_error=1)
'''
)
JUDGES = (
    Case("raises", "judge", "return {}['width']", ("judge", "raised KeyError", "own.py:")),
    Case("gives None", "judge", "return None", ("judge", "gave None", "instance of Opinion")),
    Case(
        "names no step",
        "judge",
        "return Opinion(is_known=True, first_error=99)",
        ("first_error=99 (int)", "an index below"),
    ),
    Case(
        "names a bool",
        "judge",
        "return Opinion(is_known=True, first_error=True)",
        ("first_error=True (bool)",),
    ),
    Case(
        "is unknown and knows",
        "judge",
        "return Opinion(is_known=False, first_error=0)",
        ("with is_known=False",),
    ),
    Case(
        "scores too few",
        "judge",
        "return Opinion(is_known=True, scores=(0.5,))",
        ("gave 1 scores for", "one per step"),
    ),
    Case(
        "scores nan",
        "judge",
        "return Opinion(is_known=True, scores=(float('nan'),) * len(item.steps))",
        ("scores[0]=nan (float)", "finite number"),
    ),
    Case(
        "flags outside",
        "judge",
        "return Opinion(is_known=True, flags=(Flag(step=0, start=5, end=9_999, reason=''),))",
        ("a flag on characters 5 to 9999", "must lie within"),
    ),
    Case("asks nobody", "judge", "await ask('?', number=0, max_tokens=1)", ("sample", "raised")),
    Case("exits", "judge", "sys.exit('enough')", ("judge", "raised SystemExit: enough")),
    Case(
        "does not know itself",
        "identity_inputs",
        "return 1 / 0",
        ("identity_inputs", "ZeroDivisionError"),
    ),
)
SYNC_JUDGE = JUDGE.replace("async def judge", "def judge")

ENGINE = (
    HEAD
    + '''
from mclabel.engines import Engine, EngineSettings, EngineStats
from mclabel.core.records import Completion


class Own(Engine):
    """An engine that always writes the same solution."""

    class Settings(EngineSettings):
        """Settings without further fields."""

    async def start(self):
        #start
        pass

    def prompt_ids(self, problem):
        #prompt_ids
        return self.encode(problem)

    def encode(self, text):
        #encode
        return tuple(map(ord, text))

    def decode(self, ids):
        #decode
        return "".join(map(chr, ids))

    async def sample(self, prompt, prefix, *, seed, priority=0):
        #sample
        text = "One and one.\\nThe answer is \\\\boxed{1}."
        ids = self.encode(text)[len(prefix):]
        return Completion(ids=ids, text=self.decode(ids), finish_reason="stop")
'''
)
ENGINES = (
    Case("does not start", "start", "raise OSError('no GPU')", ("start", "raised OSError: no GPU")),
    Case("raises", "sample", "1 / 0", ("sample", "raised ZeroDivisionError", "own.py:")),
    Case("gives None", "sample", "return None", ("sample", "gave None", "Completion")),
    Case(
        "gives a list of ids",
        "sample",
        "return Completion(ids=[1], text='a', finish_reason='stop')",
        ("sample", "ids=[1] (list)", "tuple"),
    ),
    Case(
        "gives negative ids",
        "sample",
        "return Completion(ids=(-1,), text='a', finish_reason='stop')",
        ("sample", "ids[0]=-1 (int)", "greater than or equal to 0"),
    ),
    Case(
        "gives ids that are none",
        "sample",
        "return Completion(ids=(2_000_000,), text='a', finish_reason='stop')",
        ("decode", "raised ValueError"),
    ),
    Case(
        "gives another text",
        "sample",
        "return Completion(ids=(97,), text='b', finish_reason='stop')",
        ("sample", "decode", "'a'"),
    ),
    Case(
        "has another end",
        "sample",
        "return Completion(ids=(97,), text='a', finish_reason='eos')",
        ("finish_reason='eos'", "'stop', 'length' or"),
    ),
    Case(
        "writes too much",
        "sample",
        "return Completion(ids=(97,) * 9999, text='a' * 9999, finish_reason='stop')",
        ("sample", "9,999 ids", "at most"),
    ),
    Case("exits", "sample", "sys.exit(3)", ("sample", "raised SystemExit")),
    Case("encodes nothing", "encode", "return None", ("prompt_ids", "gave None", "tuple")),
    Case("decodes bytes", "decode", "return b''", ("decode", "b'' (bytes)")),
)
SYNC_SAMPLE = ENGINE.replace("async def sample", "def sample")

CHECKER = (
    HEAD
    + '''
from mclabel.checkers import Checker, Grade
from mclabel.core.records import Verdict


class Own(Checker):
    """A checker that looks for the gold in a box."""

    def __init__(self, settings):
        #init
        self.name, self.version = settings.kind, "1"

    async def refuse(self, problem, run_blocking):
        #refuse
        return None

    async def grade(self, items, run_blocking):
        #grade
        return [Grade(verdict=Verdict.RIGHT if "boxed{%s}" % i.problem.answer in i.completion
                      else Verdict.WRONG) for i in items]
'''
)
CHECKERS = (
    Case("has no name", "init", "self.version = '1'; return", ("__init__", "self.name", "None")),
    Case(
        "has a number as version",
        "init",
        "self.name, self.version = 'own', 2; return",
        ("__init__", "self.version", "2 (int)"),
    ),
    Case(
        "cannot be made",
        "init",
        "open('/nowhere/at/all')",
        ("__init__", "raised FileNotFoundError"),
    ),
    Case("refuses with True", "refuse", "return True", ("refuse", "True (bool)")),
    Case("refuse raises", "refuse", "problem.golden", ("refuse", "raised AttributeError")),
    Case("always raises", "grade", "1 / 0", ("grades failed", "ZeroDivisionError", "own.py:")),
    Case("gives None", "grade", "return None", ("grade", "gave None", "Sequence")),
    Case("gives too few", "grade", "return []", ("grade", "0 grades of 1")),
    Case("gives bools", "grade", "return [True for _ in items]", ("grade", "True (bool)", "Grade")),
    Case(
        "gives another verdict",
        "grade",
        "return [Grade(verdict='fine') for _ in items]",
        ("grade", "verdict='fine'", "instance of Verdict"),
    ),
    Case(
        "answers with a number",
        "grade",
        "return [Grade(verdict=Verdict.RIGHT, answer=7) for _ in items]",
        ("grade", "answer=7 (int)"),
    ),
)
SYNC_GRADE = CHECKER.replace("async def grade", "def grade")

READER = (
    HEAD
    + '''
from mclabel.data.readers.base import RowSettings


class Own:
    """A reader of eight problems without content."""

    class Settings(RowSettings):
        """Settings without further fields."""

    def __init__(self, settings):
        #init
        pass

    def rows(self):
        #rows
        return ((n, {"problem": f"P{n} [answer {n}]", "answer": str(n)}) for n in range(1, 9))
'''
)
READERS = (
    Case(
        "cannot be made",
        "init",
        "raise RuntimeError('no key')",
        ("__init__", "RuntimeError: no key"),
    ),
    Case(
        "raises", "rows", "open('/nowhere/at/all')", ("rows", "raised FileNotFoundError", "own.py:")
    ),
    Case(
        "raises on its way",
        "rows",
        "return ((n, {'problem': f'P{n}', 'answer': str(1 // (3 - n))}) for n in range(1, 9))",
        ("rows, after 2 items,", "raised ZeroDivisionError"),
    ),
    Case("gives None", "rows", "return None", ("rows", "gave None")),
    Case("gives None as a row", "rows", "return [None]", ("rows", "gave None", "tuple")),
    Case("gives a text", "rows", "return 'rows'", ("rows", "'rows' (str)")),
    Case(
        "gives no numbers",
        "rows",
        "return [{'problem': 'P', 'answer': '1'}]",
        ("rows", "'P'", "must be a valid tuple"),
    ),
    Case(
        "numbers by name",
        "rows",
        "return [('1', {'problem': 'P', 'answer': '1'})]",
        ("rows", "[0]='1' (str)", "must be a valid integer"),
    ),
    Case(
        "counts backwards",
        "rows",
        "return [(2, {}), (1, {})]",
        ("row 1 after row 2", "must increase"),
    ),
    Case("exits", "rows", "sys.exit(1)", ("rows", "raised SystemExit")),
)
ASYNC_ROWS = READER.replace("def rows", "async def rows")

FORMAT = (
    HEAD
    + '''
from mclabel.data.exchange.formats import LabeledTexts


class Own:
    """A custom exchange format."""

    lost_information = "nothing is lost"
    stops_at_unlabeled_step = False
    #attributes

    def __init__(self):
        #init
        pass

    def write(self, texts):
        #write
        steps, ratings = list(texts.steps), list(texts.ratings)
        return {"problem": texts.problem, "steps": steps, "ratings": ratings}

    def read(self, row):
        #read
        yield LabeledTexts(problem=row["problem"], steps=tuple(row["steps"]),
                           ratings=tuple(row["ratings"]))
'''
)
FORMATS = (
    Case(
        "cannot be made",
        "init",
        "raise RuntimeError('no key')",
        ("__init__", "RuntimeError: no key"),
    ),
    Case("loses a number", "attributes", "lost_information = 3", ("lost_information", "3 (int)")),
    Case(
        "is cut by a text",
        "attributes",
        "stops_at_unlabeled_step = 'yes'",
        ("stops_at_unlabeled_step", "'yes' (str)"),
    ),
    Case("raises", "write", "texts.width", ("write", "raised AttributeError", "own.py:")),
    Case("gives a text", "write", "return 'row'", ("write", "'row' (str)")),
    Case("names by numbers", "write", "return {1: 2}", ("write", "1 (int)", "string")),
    Case("gives no JSON", "write", "return {'problem': object()}", ("write", "not a JSON object")),
    Case("exits", "write", "sys.exit(1)", ("write", "raised SystemExit")),
)
READ_FORMATS = (
    Case("reads None", "read", "yield None", ("read", "gave None")),
    Case("reads dicts", "read", "yield {}", ("read", "{} (dict)")),
    Case(
        "reads too few ratings",
        "read",
        "yield LabeledTexts(problem='p', steps=('a', 'b'), ratings=(1,))",
        ("1 ratings of 2 steps",),
    ),
    Case(
        "reads a rating of 2",
        "read",
        "yield LabeledTexts(problem='p', steps=('a',), ratings=(2,))",
        ("ratings[0]=2 (int)", "less than or equal to 1"),
    ),
    Case("cannot read", "read", "raise RuntimeError('no')", ("read", "raised RuntimeError")),
)
ASYNC_WRITE = FORMAT.replace("def write", "async def write")

TRAINING = (
    HEAD
    + """
import torch


def loss(log_odds, targets):
    #loss
    return torch.nn.functional.binary_cross_entropy_with_logits(log_odds, targets, reduction="none")


def target(row):
    #target
    return tuple(None if step.hard is None else float(step.hard) for step in row.steps)


def weights(row):
    #weights
    return (1.0,) * len(row.steps)
"""
)
TRAININGS = (
    Case("loss raises", "loss", "log_odds.width", ("loss", "raised AttributeError", "own.py:")),
    Case("loss gives None", "loss", "return None", ("loss", "gave None", "tensor")),
    Case("loss gives a sum", "loss", "return (log_odds - targets).sum()", ("loss", "shape ()")),
    Case("loss has no gradient", "loss", "return (targets * 0.0)", ("loss", "without a gradient")),
    Case("loss is not finite", "loss", "return log_odds / 0.0", ("loss", "not finite")),
    Case("loss exits", "loss", "sys.exit(1)", ("loss", "raised SystemExit")),
    Case("target raises", "target", "row.width", ("target", "raised AttributeError")),
    Case("target gives too few", "target", "return (1.0,)", ("target", "1 numbers for")),
    Case("target gives 2", "target", "return (2.0,) * len(row.steps)", ("target", "2.0 (float)")),
    Case(
        "target gives NaN",
        "target",
        "return (float('nan'),) * len(row.steps)",
        ("target", "nan (float)"),
    ),
    Case(
        "weights give None",
        "weights",
        "return (None,) * len(row.steps)",
        ("weights", "gave [0]=None"),
    ),
    Case("weights give a number", "weights", "return 1.0", ("weights", "1.0 (float)")),
)


def broken(sound: str, case: Case) -> str:
    """Return the source of a component with a fault."""
    mark = f"#{case.part}\n"
    assert mark in sound, case
    return sound.replace(mark, f"{case.code}\n")
