"""Typed configuration of the jobs: YAML files and `key=value` overrides, checked as a whole.

A field is *semantic* if it changes what a label means (enters block ids; an output refuses
another value) or *operational* (engines, paths, sizes: free to change when a run is resumed).
Configuration stops at the edge: library functions take plain arguments.
"""

from mclabel.config.evaluation import BestOfNConfig
from mclabel.config.judge import JudgeConfig
from mclabel.config.label import LabelConfig
from mclabel.config.load import bundled_config, check_config, config_file, load_config, load_content
from mclabel.config.quickstart import QuickstartConfig
from mclabel.config.rl import RLConfig, ServeRewardsConfig
from mclabel.config.score import ScoreConfig
from mclabel.config.search import SearchConfig, ServeSearchConfig
from mclabel.config.search_eval import SearchEvalConfig
from mclabel.config.select import SelectConfig
from mclabel.config.train import TrainConfig
from mclabel.settings import Settings
from mclabel.work.settings import BudgetConfig, RayConfig

__all__ = [
    "BestOfNConfig",
    "BudgetConfig",
    "JudgeConfig",
    "LabelConfig",
    "QuickstartConfig",
    "RLConfig",
    "RayConfig",
    "ScoreConfig",
    "SearchConfig",
    "SearchEvalConfig",
    "SelectConfig",
    "ServeRewardsConfig",
    "ServeSearchConfig",
    "Settings",
    "TrainConfig",
    "bundled_config",
    "check_config",
    "config_file",
    "load_config",
    "load_content",
]
