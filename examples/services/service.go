// Small web services whose limit is known, to try what Kendall says of them.
//
//	service -port PORT -kind mutex       one sync.Mutex, held for 2 ms of a request: 500/s at most
//	service -port PORT -kind rwlock      one sync.RWMutex: every fifth request writes and holds it alone for
//	                                     5 ms, the others read and share it for 1 ms. The four reads between
//	                                     two writes share one millisecond: 5 requests in 6 ms, 833/s at most
//	service -port PORT -kind sleep       10 ms of sleep and nothing shared: grows with the clients
//	service -port PORT -kind processor -cache HOST:PORT
//	                                     some 2 ms of hashing, then a get of memcached: the processor here,
//	                                     on all cores
//	service -port PORT -kind garbage     a heap of 64 MiB of small objects, which the collector marks each
//	                                     time that another tenth was allocated; a request allocates 256 KiB:
//	                                     the processor here, nearly all of it the collector's
//	service -port PORT -kind steps       4 ms of sleep, then the mutex for 2 ms: 500/s at most
//	service -port PORT -kind cached -backend HOST:PORT
//	                                     every fourth request asks another service, the others are
//	                                     answered from a map after some 0.1 ms of hashing
//	service -port PORT -kind batch       one consumer takes all that wait, 16 at most, and works 5 ms and
//	                                     0.2 ms for each: 1,950/s at most
//	service -port PORT -kind rate        lets 1,000 requests a second through, 20 at once after a pause, each
//	                                     4 ms of sleep; those above wait, with -refuse they are answered 429
//
// A sleep takes a little longer than asked for.
package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

type object struct {
	next *object
	text [48]byte
}

// objects makes a list of so many.
func objects(count int) *object {
	var list *object
	for i := 0; i < count; i++ {
		list = &object{next: list}
	}
	return list
}

func hash(rounds int) {
	block := make([]byte, 4096)
	for i := 0; i < rounds; i++ {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
}

// consume works on all requests that wait at once, 16 at most.
func consume(arrived chan chan struct{}) {
	for first := range arrived {
		batch := []chan struct{}{first}
		for len(batch) < 16 && len(arrived) > 0 {
			batch = append(batch, <-arrived)
		}
		time.Sleep(5*time.Millisecond + time.Duration(len(batch))*200*time.Microsecond)
		for _, done := range batch {
			close(done)
		}
	}
}

var errTooMany = errors.New("too many requests")

// limiter lets one request through each so often; what was not used lets as many as it saves through at once.
type limiter struct {
	mutex      sync.Mutex
	each, save time.Duration
	next       time.Time
}

// turn says how long a request has to wait until it may go on; one that is refused takes no turn.
func (l *limiter) turn(refuse bool) (time.Duration, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	if earliest := now.Add(-l.save); l.next.Before(earliest) {
		l.next = earliest
	}
	wait := l.next.Sub(now)
	if refuse && wait > 0 {
		return 0, errTooMany
	}
	l.next = l.next.Add(l.each)
	return wait, nil
}

type connection struct {
	net.Conn
	answers *bufio.Reader
}

// get reads a key that nobody stored.
func (c *connection) get() error {
	if _, err := io.WriteString(c, "get nothing\r\n"); err != nil {
		return err
	}
	_, err := c.answers.ReadString('\n')
	return err
}

func main() {
	port := flag.Int("port", 0, "where it listens, on 127.0.0.1")
	kind := flag.String("kind", "", "mutex, rwlock, sleep, processor, garbage, steps, cached, batch or rate")
	cache := flag.String("cache", "", "HOST:PORT of memcached")
	backend := flag.String("backend", "", "HOST:PORT of a service")
	refuse := flag.Bool("refuse", false, "of rate: answers 429 instead of waiting")
	flag.Parse()

	var mutex sync.Mutex
	var rwlock sync.RWMutex
	var requests atomic.Int64
	var free sync.Pool
	var kept *object
	var latest atomic.Pointer[object]
	arrived := make(chan chan struct{}, 4096)
	limit := limiter{each: time.Millisecond, save: 20 * time.Millisecond}
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}
	kinds := map[string]func() error{
		"mutex": func() error {
			mutex.Lock()
			defer mutex.Unlock()
			time.Sleep(2 * time.Millisecond)
			return nil
		},
		"rwlock": func() error {
			if requests.Add(1)%5 == 0 {
				rwlock.Lock()
				defer rwlock.Unlock()
				time.Sleep(5 * time.Millisecond)
				return nil
			}
			rwlock.RLock()
			defer rwlock.RUnlock()
			time.Sleep(time.Millisecond)
			return nil
		},
		"sleep": func() error {
			time.Sleep(10 * time.Millisecond)
			return nil
		},
		"processor": func() error {
			hash(500)
			there, _ := free.Get().(*connection)
			if there == nil {
				made, err := net.Dial("tcp", *cache)
				if err != nil {
					return err
				}
				there = &connection{made, bufio.NewReader(made)}
			}
			err := there.get()
			free.Put(there)
			return err
		},
		"garbage": func() error {
			latest.Store(objects(4096))
			return nil
		},
		"steps": func() error {
			time.Sleep(4 * time.Millisecond)
			mutex.Lock()
			defer mutex.Unlock()
			time.Sleep(2 * time.Millisecond)
			return nil
		},
		"cached": func() error {
			if requests.Add(1)%4 != 0 {
				hash(25)
				return nil
			}
			answer, err := client.Get("http://" + *backend + "/")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		},
		"batch": func() error {
			done := make(chan struct{})
			arrived <- done
			<-done
			return nil
		},
		"rate": func() error {
			wait, err := limit.turn(*refuse)
			if err != nil {
				return err
			}
			time.Sleep(wait)
			time.Sleep(4 * time.Millisecond)
			return nil
		},
	}
	work, known := kinds[*kind]
	if !known {
		log.Fatalf("no kind %q", *kind)
	}
	if *kind == "garbage" {
		debug.SetGCPercent(10)
		kept = objects(1 << 20)
	}
	if *kind == "batch" {
		go consume(arrived)
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		if err := work(); err != nil {
			status := http.StatusBadGateway
			if errors.Is(err, errTooMany) {
				status = http.StatusTooManyRequests
			}
			http.Error(answer, err.Error(), status)
			return
		}
		io.WriteString(answer, "ok\n")
	})
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), nil), kept)
}
