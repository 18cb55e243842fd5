package consumer

// Buffered is what a consumer's fetched records cost.
func Buffered(c *Consumer) int {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return c.memory.used
}
