package page_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup/operate"
)

func TestValueIsDownloadedAsAFileThatNoBrowserShows(t *testing.T) {
	s := newStage(t, nil)
	for _, status := range operate.Statuses {
		s.add(letter{id: "order-" + string(status), status: status, value: []byte("<script>alert(1)</script>\x00\xff" + string(status))})
		b := s.signedIn(readToken, "")
		address := linkTo(t, b.read(linkTo(t, b.read("message?id=order-"+string(status)), "its content")), "Download the value")
		file := b.get(address)
		require.Equal(t, http.StatusOK, file.status, file.body)
		require.Equal(t, "<script>alert(1)</script>\x00\xff"+string(status), file.body)
		require.Equal(t, "application/octet-stream", file.header.Get("Content-Type"))
		require.Regexp(t, `^attachment; filename="[0-9a-f-]{36}\.bin"$`, file.header.Get("Content-Disposition"))
		require.Equal(t, "nosniff", file.header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'; sandbox", file.header.Get("Content-Security-Policy"))
		require.Equal(t, "no-store", file.header.Get("Cache-Control"))
		require.Equal(t, http.StatusUnauthorized, s.browser().get(address).status)
	}
	gone := s.signedIn(readToken, "").get("download?status=dead&handler=book&id=nobody")
	require.Equal(t, http.StatusNotFound, gone.status)
	require.Equal(t, "text/html; charset=utf-8", gone.header.Get("Content-Type"))
	require.Contains(t, textOf(t, gone.body), "no dead message of this ID")
}

func TestPageOfALargeValueIsSmall(t *testing.T) {
	s := newStage(t, nil)
	value := bytes.Repeat([]byte("0123456789abcdef"), 60<<20/16)
	s.add(letter{id: "order-1", value: value})
	b := s.signedIn(readToken, "")
	page := b.read("letter?handler=book&id=" + s.idOf("order-1"))
	require.Less(t, len(page), 300_000)
	require.Contains(t, textOf(t, page), "60.0 MiB; the first 64.0 KiB are shown")
	file := b.get(linkTo(t, page, "Download the value"))
	require.Equal(t, http.StatusOK, file.status)
	require.True(t, bytes.Equal(value, []byte(file.body)), "%d bytes", len(file.body))
}
