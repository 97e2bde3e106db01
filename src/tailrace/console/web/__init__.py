"""The pages: what a browser gets, rendered here from Jinja2 templates, with one small script for what moves.

`site` finds the page of a request and answers it; `page` is what pages and actions are made of, `visit` one request.
`templates` renders, with what `formats`, `payload`, `tables` and `charts` make of numbers, bytes, rows and series.
`pulse` looks at the whole home for all open pages at once.  `pages` has the pages themselves, one file for each noun.

Used from outside: site.
Read in this order: site, page, visit, snapshots, templates, formats, payload, tables, charts.
"""
