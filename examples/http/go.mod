module example.org/tailrace-http

go 1.21
