"""The HTML report and the viewer: pages that show runs, labels and evaluations."""
