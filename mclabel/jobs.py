"""All jobs as functions of their checked configurations, for scripts that run several jobs.

The command line does not use this module: it imports only the package of the job that it runs.
"""

from mclabel.data.exchange.job import (
    ExportReport,
    TablesReport,
    export_run,
    export_tables,
    import_file,
)
from mclabel.evaluate.best_of_n.job import best_of_n
from mclabel.judge.combine import combine
from mclabel.judge.job import judge
from mclabel.labeling.forecast import forecast, run_pilot
from mclabel.labeling.job import label
from mclabel.labeling.preview import plan_labelling, preview
from mclabel.labeling.regrade import regrade
from mclabel.prm.job import train
from mclabel.search.job import plan_search, search, write_search_report
from mclabel.select.job import select

__all__ = [
    "ExportReport",
    "TablesReport",
    "best_of_n",
    "combine",
    "export_run",
    "export_tables",
    "forecast",
    "import_file",
    "judge",
    "label",
    "plan_labelling",
    "plan_search",
    "preview",
    "regrade",
    "run_pilot",
    "search",
    "select",
    "train",
    "write_search_report",
]
