package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

const docColumns = "d.seq, d.kind, d.id, d.version, d.type, d.owner, d.created, d.objects, d.body"

func readDoc(r []driver.Value) store.Doc {
	return store.Doc{
		Kind: store.Kind(str(r[1])), ID: str(r[2]), Version: int(num(r[3])), Type: str(r[4]), Owner: str(r[5]),
		Created: time.UnixMicro(num(r[6])).UTC(), Objects: unpackDigests(blob(r[7])), Body: []byte(str(r[8])),
	}
}

func packDigests(ds []ref.Digest) []byte {
	b := make([]byte, 0, 32*len(ds))
	for _, d := range ds {
		b = append(b, sha(d)...)
	}
	return b
}

func unpackDigests(b []byte) []ref.Digest {
	if len(b) < 32 {
		return nil
	}
	ds := make([]ref.Digest, 0, len(b)/32)
	for ; len(b) >= 32; b = b[32:] {
		ds = append(ds, ref.Digest("sha256:"+hex.EncodeToString(b[:32])))
	}
	return ds
}

// sha is the digest's 32 bytes; nil when d is no digest.
func sha(d ref.Digest) []byte {
	if !d.Valid() {
		return nil
	}
	b, _ := hex.DecodeString(d.Hex())
	return b
}

// Get is one version of a document.
func (s *Store) Get(ctx context.Context, k store.Kind, id string, version int) (d store.Doc, err error) {
	err = store.NotFound(k, id, version) // where there is no store
	rerr := s.read(ctx, func(c *conn) error {
		d, err = inside{c}.Get(ctx, k, id, version)
		return err
	})
	if rerr != nil {
		err = rerr
	}
	return d, err
}

// Latest is the latest version of each id that exists.
func (s *Store) Latest(ctx context.Context, k store.Kind, ids []string) (map[string]store.Doc, error) {
	out := map[string]store.Doc{}
	err := s.read(ctx, func(c *conn) (err error) {
		out, err = inside{c}.Latest(ctx, k, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// List is a page of documents, newest first.
func (s *Store) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	if _, err := cursorOf(q); err != nil { // where there is no store too
		return store.Page{}, err
	}
	err = s.read(ctx, func(c *conn) error {
		p, err = inside{c}.List(ctx, q)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return p, nil
}

// inside reads documents within the transaction of a connection.
type inside struct{ c *conn }

var _ store.Docs = inside{}

// Get is one version of a document.
func (i inside) Get(ctx context.Context, k store.Kind, id string, version int) (store.Doc, error) {
	var d store.Doc
	found := false
	row := func(r []driver.Value) error {
		d, found = readDoc(r), true
		return nil
	}
	var err error
	if version == 0 {
		err = i.c.query(ctx, "SELECT "+docColumns+" FROM docs d WHERE kind=? AND id=? ORDER BY version DESC LIMIT 1", row, string(k), id)
	} else {
		err = i.c.query(ctx, "SELECT "+docColumns+" FROM docs d WHERE kind=? AND id=? AND version=?", row, string(k), id, int64(version))
	}
	if err != nil {
		return store.Doc{}, err
	}
	if !found {
		return store.Doc{}, store.NotFound(k, id, version)
	}
	return d, nil
}

// batches are how many ids one query asks for, largest first: few texts, so that their statements are kept.
var batches = [...]int{128, 16, 1}

// latestQuery joins each id of a batch to the row of its latest version. The last parameter is the kind.
func latestQuery(columns string, n int) string {
	return "WITH want(id) AS (VALUES (?)" + strings.Repeat(",(?)", n-1) + ") SELECT " + columns +
		" FROM want w JOIN docs d ON d.seq = (SELECT seq FROM docs WHERE kind=? AND id=w.id ORDER BY version DESC LIMIT 1)"
}

// eachLatest calls row for the latest version of each id that exists.
func (c *conn) eachLatest(ctx context.Context, columns string, k store.Kind, ids []string, row func([]driver.Value) error) error {
	for _, n := range batches {
		q := latestQuery(columns, n)
		for ; len(ids) >= n; ids = ids[n:] {
			args := make([]driver.Value, 0, n+1)
			for _, id := range ids[:n] {
				args = append(args, id)
			}
			if err := c.query(ctx, q, row, append(args, string(k))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Latest is the latest version of each id that exists.
func (i inside) Latest(ctx context.Context, k store.Kind, ids []string) (map[string]store.Doc, error) {
	out := make(map[string]store.Doc, len(ids))
	err := i.c.eachLatest(ctx, docColumns, k, ids, func(r []driver.Value) error {
		d := readDoc(r)
		out[d.ID] = d
		return nil
	})
	return out, err
}

// cursorOf is where a query begins; zero for its first page.
func cursorOf(q store.Query) (store.Cursor, error) {
	if q.After == "" {
		return store.Cursor{}, nil
	}
	return store.ParseCursor(q.After)
}

// List is a page of documents, newest first.
func (i inside) List(ctx context.Context, q store.Query) (store.Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	cur, err := cursorOf(q)
	if err != nil {
		return store.Page{}, err
	}
	if q.After == "" {
		row := func(r []driver.Value) error { cur.Snapshot = num(r[0]); return nil }
		if err := i.c.query(ctx, "SELECT coalesce(max(seq), 0) FROM docs", row); err != nil {
			return store.Page{}, err
		}
		cur.Before = cur.Snapshot + 1
	}
	var p store.Page
	text, args := listQuery(q, cur)
	err = i.c.query(ctx, text, func(r []driver.Value) error {
		if len(p.Docs) == limit {
			p.Next = cur.String()
			return nil
		}
		cur.Before = num(r[0])
		p.Docs = append(grown(p.Docs, limit), readDoc(r))
		return nil
	}, append(args, int64(limit+1))...)
	return p, err
}

// ownOnly is ref.IsDerived, denied: replace takes everything up to the last slash away.
const ownOnly = " AND (instr(id, '__')=0 OR instr(replace(id, rtrim(id, replace(id, '/', '')), ''), '__')=0)"

// listQuery is one of a few texts: each field of the query that restricts adds a term. Its last parameter is the limit.
func listQuery(q store.Query, cur store.Cursor) (string, []driver.Value) {
	from := " FROM docs d"
	if q.ID != "" {
		from += " INDEXED BY docs_id" // few rows, sorted, in place of the kind's whole list
	}
	text := "SELECT " + docColumns + from + " WHERE kind=? AND seq<?"
	args := []driver.Value{string(q.Kind), min(cur.Before, cur.Snapshot+1)}
	if !q.AllVersions {
		text += " AND (until=0 OR until>?)"
		args = append(args, cur.Snapshot)
	}
	if q.Type != "" {
		text += " AND type=?"
		args = append(args, q.Type)
	}
	if q.Owner != "" {
		text += " AND owner=?"
		args = append(args, q.Owner)
	}
	if q.ID != "" {
		text += " AND id=?"
		args = append(args, q.ID)
	}
	if q.Own {
		text += ownOnly
	}
	if q.Prefix != "" {
		text += " AND id>=? AND id<?" // 0xff is in no text
		args = append(args, q.Prefix, q.Prefix+"\xff")
	}
	return text + " ORDER BY seq DESC LIMIT ?", args
}
