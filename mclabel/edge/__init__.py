"""From checked configurations to the objects that the library takes.

The one place where configurations meet library code, shared by the command line and by jobs.
"""

from mclabel.edge.best_of_n import best_of_n
from mclabel.edge.exchange import ExportReport, export_run, import_file
from mclabel.edge.export_tables import TablesReport, export_tables
from mclabel.edge.forecast import forecast, run_pilot
from mclabel.edge.label import label
from mclabel.edge.plan import plan
from mclabel.edge.preview import preview
from mclabel.edge.regrade import regrade
from mclabel.edge.train import train

__all__ = [
    "ExportReport",
    "TablesReport",
    "best_of_n",
    "export_run",
    "export_tables",
    "forecast",
    "import_file",
    "label",
    "plan",
    "preview",
    "regrade",
    "run_pilot",
    "train",
]
