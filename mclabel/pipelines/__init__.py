"""From checked configurations to the objects that the library takes.

The one place where configurations meet library code, shared by the command line and by jobs.
"""

from mclabel.pipelines.best_of_n import best_of_n
from mclabel.pipelines.combine import combine
from mclabel.pipelines.eval_search import eval_search
from mclabel.pipelines.exchange import ExportReport, export_run, import_file
from mclabel.pipelines.export_tables import TablesReport, export_tables
from mclabel.pipelines.forecast import forecast, run_pilot
from mclabel.pipelines.judge import judge
from mclabel.pipelines.label import label
from mclabel.pipelines.plan import plan
from mclabel.pipelines.preview import preview
from mclabel.pipelines.regrade import regrade
from mclabel.pipelines.rl import plan_rl, rl, rl_lines
from mclabel.pipelines.search import plan_search, search, search_lines
from mclabel.pipelines.select import select
from mclabel.pipelines.train import train

__all__ = [
    "ExportReport",
    "TablesReport",
    "best_of_n",
    "combine",
    "eval_search",
    "export_run",
    "export_tables",
    "forecast",
    "import_file",
    "judge",
    "label",
    "plan",
    "plan_rl",
    "plan_search",
    "preview",
    "regrade",
    "rl",
    "rl_lines",
    "run_pilot",
    "search",
    "search_lines",
    "select",
    "train",
]
