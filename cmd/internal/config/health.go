package config

func (l *loader) checkHealth(h Health) {
	d, u := h.Degraded, h.Unhealthy
	l.checkRatio("health.degraded.failure_ratio", d.FailureRatio)
	l.checkRatio("health.unhealthy.failure_ratio", u.FailureRatio)
	l.checkOrder("backlog", u.Backlog > 0 && u.Backlog < d.Backlog)
	l.checkOrder("dead_letters", u.DeadLetters > 0 && u.DeadLetters < d.DeadLetters)
	l.checkOrder("oldest_age", u.OldestAge > 0 && u.OldestAge < d.OldestAge)
	l.checkOrder("failure_ratio", u.FailureRatio < d.FailureRatio)
}

func (l *loader) checkRatio(path string, ratio float64) {
	if ratio > 1 {
		l.fault(path, "%v is not a share; write 0 to 1, like 0.05", ratio)
	}
}

// checkOrder wants what is unhealthy to be degraded too.
func (l *loader) checkOrder(name string, below bool) {
	if path := "health.unhealthy." + name; below && !l.has(path) && !l.has("health.degraded."+name) {
		l.fault(path, "is below health.degraded.%s; what is unhealthy must be degraded too", name)
	}
}
