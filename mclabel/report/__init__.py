"""Pages for people: the HTML report and the viewer."""
