"""The pages that a browser gets, rendered from Jinja2 templates, with one small script for the parts that change.

`site` finds the page of a request and answers it; `page` defines pages and actions, `visit` a browser's request.
`templates` renders, with what `formats`, `payload`, `tables` and `charts` make of numbers, bytes, rows and series.
`snapshots` looks at the whole home once for all open pages.  `pages` has the pages themselves, one file for each noun.

Used from outside: site.
Read in this order: site, page, visit, snapshots, templates, formats, payload, tables, charts.
"""
