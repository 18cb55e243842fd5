package config

// Nearest is which of the known names was probably meant by one that is none of them; empty: none is like it.
func Nearest(name string, known []string) (nearest string) {
	least := 0
	for _, k := range known {
		d := distance(bare(name), bare(k))
		if alike(bare(name), bare(k), d) && (nearest == "" || d < least) {
			nearest, least = k, d
		}
	}
	return nearest
}
