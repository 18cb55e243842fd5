//go:build !linux

package child

func memoryDir() string { return "" }
