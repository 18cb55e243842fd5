package dedup

import (
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/internal/uuid8"
)

// Ordering says which messages wait for an earlier one that is not finished.
type Ordering string

// The orderings. The zero value is OrderByKey.
const (
	// OrderByKey: messages with the same key, in the same partition. One without a key waits for none.
	OrderByKey Ordering = "key"
	// OrderByPartition: all messages of a partition.
	OrderByPartition Ordering = "partition"
	// Unordered: none.
	Unordered Ordering = "none"
)

// Validate says what is wrong with an ordering that is not one of the constants.
func (o Ordering) Validate() error {
	switch o {
	case "", OrderByKey, OrderByPartition, Unordered:
		return nil
	}
	return fmt.Errorf("ordering %q is none of key, partition, none", string(o))
}

// Lane is the queue that a message joins while it, or an earlier message that it waits for, is unfinished. Lanes are
// per partition: between partitions there is no order to keep.
func (o Ordering) Lane(m *Message) uuid.UUID {
	if o == Unordered || o != OrderByPartition && m.Key == nil {
		return m.ID
	}
	var partition [4]byte
	binary.BigEndian.PutUint32(partition[:], uint32(m.Partition))
	if o == OrderByPartition {
		return uuid8.New(uuid8.Lane, []byte(m.Topic), partition[:])
	}
	return uuid8.New(uuid8.Lane, []byte(m.Topic), partition[:], m.Key)
}
