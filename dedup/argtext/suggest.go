package argtext

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// Nearest finds the known name that was probably meant by one that is none of them; empty: none is like it.
func Nearest(name string, known []string) (nearest string) {
	least := 0
	for _, k := range known {
		if d := Distance(name, k); Alike(name, k) && (nearest == "" || d < least) {
			nearest, least = k, d
		}
	}
	return nearest
}

// Distance counts the letters in which two names differ, whatever their case and what joins their words.
func Distance(a, b string) int { return levenshtein.ComputeDistance(bare(a), bare(b)) }

// Alike says whether one name may have been meant by another: by a typo, or by a longer one.
func Alike(name, known string) bool {
	name, known = bare(name), bare(known)
	return IsTypo(name, known) || len(known) > 3 && strings.Contains(name, known)
}

// IsTypo allows for one wrong letter in three.
func IsTypo(name, known string) bool {
	return 3*Distance(name, known) <= max(len(bare(name)), len(bare(known)))
}

// bare drops what people spell in different ways.
func bare(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}
