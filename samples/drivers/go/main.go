// pgx: run with the server's address in PGHOST and PGPORT.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const where = "user=ann dbname=bank"
const long = "select count(*) from generate_series(1, 1000000000000)"

var (
	ctx            = context.Background()
	passed, failed int
	name           = "pgx"
)

func equal(check string, got, expected any) {
	if reflect.DeepEqual(got, expected) {
		passed++
		return
	}
	failed++
	fmt.Printf("driver: %s: %s: expected %v, got %v\n", name, check, expected, got)
}

func sqlstate(err error) string {
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	return fmt.Sprint(err)
}

// must ends the part that runs: main tells of it.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func connect(more string) *pgx.Conn {
	return must(pgx.Connect(ctx, where+" "+more))
}

func execute(conn *pgx.Conn, sql string, arguments ...any) pgconn.CommandTag {
	return must(conn.Exec(ctx, sql, arguments...))
}

type row struct {
	id    int32
	small *int16
	big   *int64
	name  *string
	at    *time.Time
	ok    *bool
	raw   []byte
	ratio *float64
	day   *time.Time
}

func rowOf(number int) row {
	if number%4 == 3 {
		return row{id: int32(number)}
	}
	small, big, name := int16(number), int64(number)<<40, fmt.Sprintf("größe %d", number)
	at := time.Date(2026, 1, 31, 12, 30, number%60, 123456000, time.UTC)
	day := time.Date(2026, 1, 1+number%28, 0, 0, 0, 0, time.UTC)
	ok, ratio := number%2 == 0, float64(number)/4
	return row{int32(number), &small, &big, &name, &at, &ok, []byte{0, byte(number), 255}, &ratio, &day}
}

const insert = "insert into pgx_t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

func arguments(number int) []any {
	row := rowOf(number)
	var amount any
	if row.small != nil {
		amount = pgtype.Numeric{}
		var numeric pgtype.Numeric
		check(numeric.Scan(fmt.Sprintf("%d.25", number)))
		amount = numeric
	}
	return []any{row.id, row.small, row.big, row.name, amount, row.at, row.ok, row.raw, row.ratio, row.day}
}

func rows() {
	conn := connect("")
	defer conn.Close(ctx)
	execute(conn, `create table pgx_t (id int primary key, small smallint, big bigint, name text,
		amount numeric(12,2), at timestamp, ok boolean, raw bytea, ratio double precision, day date)`)
	for number := range 12 {
		equal(fmt.Sprint("insert ", number), execute(conn, insert, arguments(number)...).RowsAffected(), int64(1))
	}
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	for number := range 12 {
		for _, mode := range modes {
			var got row
			var amount *string
			sql := "select id, small, big, name, amount::text, at, ok, raw, ratio, day from pgx_t where id = $1"
			found := conn.QueryRow(ctx, sql, mode, int32(number))
			check(found.Scan(&got.id, &got.small, &got.big, &got.name, &amount, &got.at, &got.ok, &got.raw, &got.ratio, &got.day))
			equal(fmt.Sprint("row ", number, " in mode ", mode), got, rowOf(number))
		}
	}
	batch := &pgx.Batch{}
	for number := range 30 {
		batch.Queue(insert, arguments(100+number)...)
	}
	check(conn.SendBatch(ctx, batch).Close())
	equal("a batch", count(conn, "select count(*) from pgx_t where id >= 100"), int64(30))
}

func count(conn *pgx.Conn, sql string, arguments ...any) int64 {
	var count int64
	check(conn.QueryRow(ctx, sql, arguments...).Scan(&count))
	return count
}

func failures() {
	conn := connect("")
	defer conn.Close(ctx)
	for range 12 {
		tx := must(conn.Begin(ctx))
		_, err := tx.Exec(ctx, "insert into pgx_t (id, name) values ($1, $2)", 1, "x")
		equal("a unique violation", sqlstate(err), "23505")
		_, err = tx.Exec(ctx, "select 1")
		equal("in a failed block", sqlstate(err), "25P02")
		check(tx.Rollback(ctx))
	}
	tx := must(conn.Begin(ctx))
	_, err := tx.Exec(ctx, "selec 1")
	equal("a syntax error", sqlstate(err), "42601")
	check(tx.Rollback(ctx))
	check(pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into pgx_t (id) values (1)")
			return err
		})
		equal("an error behind a savepoint", sqlstate(err), "23505")
		_, err = tx.Exec(ctx, "insert into pgx_t (id) values (50)")
		return err
	}))
	equal("what is left", count(conn, "select count(*) from pgx_t where id < 100"), int64(13))
	check(conn.DeallocateAll(ctx))
	_, err = conn.Prepare(ctx, "mine", "select 1")
	check(err)
	check(conn.Deallocate(ctx, "mine"))
	execute(conn, "discard all")
}

// Two connections lock two rows in opposite orders; the victim runs again.
func conflicts() {
	conn := connect("")
	defer conn.Close(ctx)
	execute(conn, "create table pgx_account (id int primary key, balance int)")
	execute(conn, "insert into pgx_account values (1, 100), (2, 100)")
	var both, done sync.WaitGroup
	var lock sync.Mutex
	var retries []string
	both.Add(2)
	move := func(source, target int) {
		defer done.Done()
		conn := connect("")
		defer conn.Close(ctx)
		first := true
		for {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				update := "update pgx_account set balance = balance + $1 where id = $2"
				if _, err := tx.Exec(ctx, update, -10, source); err != nil {
					return err
				}
				if first {
					first = false
					both.Done()
					both.Wait()
				}
				_, err := tx.Exec(ctx, update, 10, target)
				return err
			})
			if err == nil {
				return
			}
			lock.Lock()
			retries = append(retries, sqlstate(err)[:2])
			lock.Unlock()
			if !strings.HasPrefix(sqlstate(err), "40") {
				return
			}
		}
	}
	done.Add(2)
	go move(1, 2)
	go move(2, 1)
	done.Wait()
	equal("a victim of class 40", retries, []string{"40"})
	equal("both moves are done", count(conn, "select count(*) from pgx_account where balance = 100"), int64(2))
}

func bulk() {
	conn := connect("")
	defer conn.Close(ctx)
	execute(conn, "create table pgx_bulk (id int primary key, name text)")
	var text strings.Builder
	for number := range 1000 {
		fmt.Fprintf(&text, "%d\tname %d\n", number, number)
	}
	done := must(conn.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "copy pgx_bulk from stdin"))
	equal("COPY FROM", done.RowsAffected(), int64(1000))
	var out strings.Builder
	must(conn.PgConn().CopyTo(ctx, &out, "copy pgx_bulk to stdout"))
	equal("COPY TO", len(out.String()), len(text.String()))
}

func binaryCopy() {
	conn := connect("")
	defer conn.Close(ctx)
	execute(conn, "create table pgx_binary (id int primary key, name text, at timestamp)")
	source := pgx.CopyFromSlice(1000, func(number int) ([]any, error) {
		row := rowOf(number)
		return []any{row.id, row.name, row.at}, nil
	})
	done := must(conn.CopyFrom(ctx, pgx.Identifier{"pgx_binary"}, []string{"id", "name", "at"}, source))
	equal("CopyFrom", done, int64(1000))
	equal("its rows", count(conn, "select count(*) from pgx_binary where name is null"), int64(250))
}

func arrays() {
	conn := connect("")
	defer conn.Close(ctx)
	for range 12 {
		equal("= ANY", count(conn, "select count(*) from pgx_t where id = any($1)", []int32{1, 2, 2000}), int64(2))
	}
}

func pool() {
	pool := must(pgxpool.New(ctx, where+" pool_max_conns=1"))
	defer pool.Close()
	for range 12 {
		conn := must(pool.Acquire(ctx))
		var name string
		check(conn.QueryRow(ctx, "select name from pgx_t where id = $1", 1).Scan(&name))
		equal("from the pool", name, "größe 1")
		conn.Release()
		_, err := pool.Exec(ctx, "insert into pgx_t (id) values (1)")
		equal("an error", sqlstate(err), "23505")
	}
}

func limits() {
	for _, how := range []string{"statement_timeout=50ms", "options='-c statement_timeout=50ms'"} {
		conn := connect(how)
		_, err := conn.Exec(ctx, long)
		equal("a statement's time is up", sqlstate(err), "57014")
		conn.Close(ctx)
	}
	conn := connect("")
	defer conn.Close(ctx)
	ended := make(chan bool)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
				_ = conn.PgConn().CancelRequest(ctx)
			}
		}
	}()
	_, err := conn.Exec(ctx, long)
	ended <- true
	equal("a cancelled statement", sqlstate(err), "57014")
	equal("after it", count(conn, "select count(*) from pgx_t where id = 1"), int64(1))
}

func part(name string, work func()) {
	defer func() {
		if err := recover(); err != nil {
			equal(name, err, "no error")
		}
	}()
	work()
}

func main() {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/jackc/pgx/v5" {
				name = "pgx " + strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	part("rows", rows)
	part("failures", failures)
	part("conflicts", conflicts)
	part("bulk", bulk)
	part("binary_copy", binaryCopy)
	part("arrays", arrays)
	part("pool", pool)
	part("limits", limits)
	if failed > 0 {
		fmt.Printf("driver: %s failed %d of %d checks\n", name, failed, passed+failed)
		os.Exit(1)
	}
	fmt.Printf("driver: %s passed %d checks\n", name, passed)
}
