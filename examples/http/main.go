// A Go program that uses a home over HTTP: it appends orders, reads them back, and works a queue.
// It needs nothing but Go's own library.
//
//	tailrace serve --port 7117
//	TAILRACE_URL=http://127.0.0.1:7117 TAILRACE_TOKEN=... go run .
//
// It prints:
//
//	appended 3 orders, the last batch is 1
//	read order-1 paid, order-2 paid, order-3 paid
//	mailed order-1 at attempt 1
//	mailed order-2 at attempt 2
//	mailed order-3 at attempt 1
//	acknowledged 3, left 0
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"time"
)

// A Client asks one server.
type Client struct {
	base, token string
	http        http.Client
}

// A Problem is what the server answers when something is wrong (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// send makes one request; the caller closes the body of the answer.
func (c *Client) send(method, path, accept string, body any) (*http.Response, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, c.base+"/api/v1"+path, sent)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", accept)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 400 {
		defer answer.Body.Close()
		var problem Problem
		if err := json.NewDecoder(answer.Body).Decode(&problem); err != nil {
			return nil, fmt.Errorf("%s: %w", answer.Status, err)
		}
		return nil, problem
	}
	return answer, nil
}

// call makes one request and decodes its answer.  One that had no answer, or met a home that is away, is made again:
// so everything that is called here must be safe to repeat.
func (c *Client) call(method, path string, body, into any) error {
	for attempt := 0; ; attempt++ {
		answer, err := c.send(method, path, "application/json", body)
		var problem Problem
		if err != nil && attempt < 5 && (!errors.As(err, &problem) || problem.Status >= 500) {
			time.Sleep(time.Duration(100<<attempt) * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if into == nil {
			return nil
		}
		return json.NewDecoder(answer.Body).Decode(into)
	}
}

// unlessThere passes over the answer that something exists already.
func unlessThere(err error) error {
	var problem Problem
	if errors.As(err, &problem) && problem.Title == "AlreadyThere" {
		return nil
	}
	return err
}

type object map[string]any

// appendOrders stores one numbered batch: sent again, by this run or the next, it is stored once.
func appendOrders(c *Client) error {
	if err := unlessThere(c.call("POST", "/topics", object{"name": "orders", "partitions": 2}, nil)); err != nil {
		return err
	}
	records := []object{}
	for n := 1; n <= 3; n++ {
		records = append(records, object{"key": fmt.Sprint("order-", n), "json": object{"state": "paid"}})
	}
	path := "/topics/orders/records?producer=shop&batch=1"
	if err := c.call("POST", path, object{"records": records}, nil); err != nil {
		return err
	}
	var producer struct {
		Last int `json:"last"`
	}
	if err := c.call("GET", "/topics/orders/producers/shop", nil, &producer); err != nil {
		return err
	}
	fmt.Printf("appended %d orders, the last batch is %d\n", len(records), producer.Last)
	return nil
}

// readOrders reads the topic as NDJSON, a record a line.
func readOrders(c *Client) ([]string, error) {
	answer, err := c.send("GET", "/topics/orders/records", "application/x-ndjson", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	keys, shown := []string{}, []string{}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var record struct{ Key, Value string }
		var order struct{ State string }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(record.Value), &order); err != nil {
			return nil, err
		}
		keys, shown = append(keys, record.Key), append(shown, record.Key+" "+order.State)
	}
	sort.Strings(keys)
	sort.Strings(shown)
	fmt.Println("read", strings.Join(shown, ", "))
	return keys, lines.Err()
}

// workQueue pushes a message for each order, and handles all: the second fails once.
func workQueue(c *Client, orders []string) error {
	if err := unlessThere(c.call("POST", "/queues", object{"name": "mails", "shards": 2}, nil)); err != nil {
		return err
	}
	messages := []object{}
	for _, order := range orders {
		messages = append(messages, object{"json": object{"order": order}, "key": "all", "dedup": order})
	}
	if err := c.call("POST", "/queues/mails/messages", object{"messages": messages}, nil); err != nil {
		return err
	}
	done := 0
	for done < len(orders) {
		var taken struct {
			Leases []struct {
				Lease   string
				Attempt int
				Json    struct{ Order string }
			}
		}
		if err := c.call("POST", "/queues/mails/leases", object{"most": 10, "seconds": 30, "wait": 20}, &taken); err != nil {
			return err
		}
		for _, lease := range taken.Leases {
			path := "/queues/mails/leases/" + lease.Lease
			if lease.Json.Order == "order-2" && lease.Attempt == 1 {
				again := object{"after": 0, "reason": "the mail server was busy"}
				if err := c.call("POST", path+"/retry", again, nil); err != nil {
					return err
				}
				continue
			}
			fmt.Printf("mailed %s at attempt %d\n", lease.Json.Order, lease.Attempt)
			if err := c.call("POST", path+"/ack", nil, nil); err != nil {
				return err
			}
			done++
		}
	}
	var queue struct {
		Counts struct{ Acked, Backlog int }
	}
	if err := c.call("GET", "/queues/mails", nil, &queue); err != nil {
		return err
	}
	fmt.Printf("acknowledged %d, left %d\n", queue.Counts.Acked, queue.Counts.Backlog)
	return nil
}

func run() error {
	base := os.Getenv("TAILRACE_URL")
	if base == "" {
		base = "http://127.0.0.1:7117"
	}
	c := &Client{base: strings.TrimSuffix(base, "/"), token: os.Getenv("TAILRACE_TOKEN")}
	if err := appendOrders(c); err != nil {
		return err
	}
	orders, err := readOrders(c)
	if err != nil {
		return err
	}
	return workQueue(c, orders)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}
