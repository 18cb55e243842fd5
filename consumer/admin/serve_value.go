package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

// maxDownloads caps the values that are sent at a time: they are of the server's answers, and leave some to others.
const maxDownloads = maxAnswers / 2

type valueInput struct {
	Status  string `query:"status" required:"true" enum:"pending,failed,processed,dead" doc:"What has become of the message."`
	Handler string `query:"handler" required:"true" minLength:"1" doc:"The handler's name."`
	ID      string `query:"id" required:"true" pattern:"^[^\\x00]*[^\\x00-\\x20][^\\x00]*$" patternDescription:"an ID, which is not blank" doc:"The ID as the producer wrote it, or the message's UUID."`
	Tenant  string `query:"tenant" doc:"The tenant. Empty is a message without one, or the only one there is."`
}

// download is a value that is sent piece by piece, whatever its size: one is in memory.
type download struct {
	store   *operate.Inbox
	message operate.Listed
	first   *operate.Slice
}

// stream waits for memory, and for no turn: what is sent by it takes one for each piece that it reads.
func (c *call) stream(do func() (any, error)) (any, error) {
	if err := await(c.request.Context(), c.api.downloads); err != nil {
		return nil, err
	}
	c.downloads = true
	if err := c.reserve(); err != nil {
		return nil, err
	}
	return do()
}

func getValue(c *call, in *valueInput) (d *download, _ error) {
	store, ids, err := c.inboxOf(in.ID)
	if err != nil {
		return nil, err
	}
	_, err = c.take(c.api.reads, readLimit, func() (any, error) {
		found, _, err := store.Messages(c.ctx, operate.Listing{Status: operate.Status(in.Status), Limit: maxPage,
			Filter: operate.Filter{Handler: in.Handler, Tenant: in.Tenant, IDs: ids}})
		if at := ofTenant(found, in.Tenant); err == nil && at >= 0 {
			d = &download{store: store, message: found[at]}
		}
		return nil, err
	})
	if err == nil && d != nil {
		d.first, err = d.begin(c)
	}
	switch {
	case err != nil:
		return nil, err
	case d == nil || d.first == nil:
		return nil, httpjson.Errorf(http.StatusNotFound, "handler %s has no %s message of this ID; /api/v1/explain tells what "+
			"became of it", httpjson.Brief(in.Handler), in.Status)
	case d.first.Null:
		return nil, httpjson.Errorf(http.StatusNotFound, "the message has no value: it is null, and not empty")
	}
	return d, nil
}

// ofTenant picks the message of a tenant, or the only one that there is; -1: there is none.
func ofTenant(found []operate.Listed, tenant string) int {
	for i := range found {
		if found[i].Message.Tenant == tenant {
			return i
		}
	}
	if len(found) == 1 {
		return 0
	}
	return -1
}

// begin gives the first piece: of a value that is hidden in part all of it, as it is shown elsewhere.
func (d *download) begin(c *call) (*operate.Slice, error) {
	m := &d.message.Message
	piece, err := d.read(c, 0)
	switch {
	case err != nil || piece == nil || piece.Null || !c.rules.HidesValue(m.Topic):
		return piece, err
	case len(piece.Bytes) < piece.Size || piece.Size > singleBytes:
		return nil, httpjson.Errorf(http.StatusForbidden, "something of this topic's values is hidden, and this one is too large "+
			"to look for it: %d KiB at most are; see http.mask in the config", min(singleBytes, d.most(c))>>10)
	}
	m.Value = piece.Bytes
	piece.Bytes = c.looks(singleBytes).ValueOf(m)
	piece.Size = len(piece.Bytes)
	return piece, nil
}

// most is the size of a piece: half of the memory that was taken, for the driver has it once more.
func (d *download) most(c *call) int {
	if c.bytes > 0 {
		return c.bytes / 2
	}
	return answerBytes / 2
}

// read gives the piece from a byte on.
func (d *download) read(c *call, from int) (piece *operate.Slice, err error) {
	_, err = c.take(c.api.reads, readLimit, func() (_ any, err error) {
		piece, err = d.store.ValueSlice(c.ctx, &d.message, from, d.most(c))
		return nil, err
	})
	return piece, err
}

// send answers with the value as a file, which no browser shows as a page. Where it can't go on it ends short of the
// length that was said, by which a client knows.
func (d *download) send(c *call) {
	h := c.writer.Header()
	httpjson.Guard(h.Set)
	h.Set("Content-Type", fileType)
	h.Set("Content-Disposition", `attachment; filename="`+d.message.Message.ID.String()+`.bin"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Length", strconv.Itoa(d.first.Size))
	piece, sent := d.first, 0
	for {
		_ = http.NewResponseController(c.writer).SetWriteDeadline(time.Now().Add(writeTimeout)) // of each piece
		n, err := c.writer.Write(piece.Bytes)
		if sent += n; err != nil || sent >= d.first.Size {
			return
		}
		if piece, err = d.read(c, sent); err != nil || piece == nil || len(piece.Bytes) == 0 || piece.Size != d.first.Size {
			d.log(c, err)
			return
		}
	}
}

func (d *download) log(c *call, err error) {
	if c.request.Context().Err() == nil {
		c.api.log.Warn("a download ended early: the message is gone, or Postgres is", "message", d.message.Message.ID, "error", err)
	}
}

const fileType = "application/octet-stream"

// fileResponse describes what a download answers.
func fileResponse() *huma.Response {
	return &huma.Response{Description: "The value, byte for byte.", Content: map[string]*huma.MediaType{
		fileType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}
}
