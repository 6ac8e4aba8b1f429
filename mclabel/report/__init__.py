"""What a person looks at: the HTML report and the viewer."""
