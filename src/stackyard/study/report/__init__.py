"""Reports of studies: one document (`content`) as HTML, Markdown or text; figures as SVG; data as CSV and JSON."""
