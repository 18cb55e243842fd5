package uuid8

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestDerivedIDIsVersion8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := New(rapid.String().Draw(t, "domain"), []byte(rapid.String().Draw(t, "part")))
		assert.EqualValues(t, 8, id.Version())
		assert.Equal(t, uuid.RFC4122, id.Variant())
	})
}

func TestDerivedIDDependsOnWhereThePartsEnd(t *testing.T) {
	assert.NotEqual(t, New("d", []byte("a"), []byte("bc")), New("d", []byte("ab"), []byte("c")))
	assert.NotEqual(t, New("d", []byte("a")), New("d", []byte("a"), nil))
	assert.NotEqual(t, New("d", []byte("a")), New("da"))
}
