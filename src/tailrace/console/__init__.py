"""The console: a home over HTTP, for browsers and for programs in any language.  `tailrace serve` starts it.

`server` binds and runs, `app` puts the parts together.  A request goes through `security` (Host, token, Origin, role),
`router` (which operation) and `limits` to a handler in `api`; `operation` is what the router and the OpenAPI document
are made from, `problems` turns errors into answers.  `open_home` has the home and what requests share: `producers`,
`tails` (followers), `jobs`, `audit` and `commit_times`.  `web` has the pages.  Starlette and uvicorn come with
`tailrace[console]`; `metrics` needs neither.

Used from outside: server, metrics, limits.
Read in this order: server, app, security, header_timeout, router, operation, problems, limits, open_home, producers,
tails, jobs, audit, commit_times, data, cursor, reading, streaming, openapi, metrics.
"""
