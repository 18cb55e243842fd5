package devstack

import "fmt"

// verdict is what a visitor is told of the sum: right, wrong, or nothing yet; and one sentence of why.
func (f *figures) verdict() (mark, why string) {
	due := f.due()
	switch {
	case f.Received == 0:
		return "", "Nothing has been booked yet."
	case !f.right() && f.Balance == due.Balance:
		return "wrong", fmt.Sprintf("%s movements had %s effects.", commas(due.Unique), commas(f.Effects))
	case !f.right():
		return "wrong", "A movement took effect twice, or not at all."
	case f.Sent:
		return "right", fmt.Sprintf("No movement took effect twice; %s of %s have taken effect so far, "+
			"the others are on their way through the outbox.", commas(f.Effects), commas(f.Expected.Unique))
	case f.Parked > 0:
		return "right", fmt.Sprintf("Of the %s movements that the consumer has reached, %s took effect once each, "+
			"and %s in line for another try.", commas(f.Expected.Unique), commas(f.Effects), many(f.Parked, "waits", "wait"))
	}
	return "right", fmt.Sprintf("%s messages were taken, copies and redelivered ones included; "+
		"the %s movements in them took effect once each: none twice, none lost.", commas(f.Received), commas(f.Effects))
}

// now is what a visitor sees happening, in a sentence; trouble says that something is down.
func (f *figures) now() (text string, trouble bool) {
	switch {
	case f.Down > 0:
		return fmt.Sprintf("The consumer died %.1f s ago, and another one is starting. %s, or to come again.",
			f.Down.Seconds(), many(f.Lag, "message is to come", "messages are to come")), true
	case f.Received == 0:
		return "The first messages are sent, and the consumer joins its group.", false
	case f.Back > 0:
		return fmt.Sprintf("It is back: process %d took over within %.1f s, from where the dead one had committed.", f.PID,
			f.Back.Seconds()), false
	case f.Refused > 0:
		return fmt.Sprintf("The handler fails for account %d, for another %d s: %s, in order. The other %d go on.",
			refusedAccount, int(f.Refused.Seconds())+1, many(f.Parked, "of its messages waits", "of its messages wait"),
			accounts-1), true
	case f.Resent > 0:
		return fmt.Sprintf("%s again, under new offsets. Their IDs are known: they are dropped, and change no balance.",
			many(int64(f.Resent), "message comes", "messages come")), false
	case f.Parked > 0:
		return fmt.Sprintf("%s for another try, in the order of its account.",
			many(f.Parked, "message waits", "messages wait")), false
	case float64(f.Lag) > max(f.Rate, 100):
		return fmt.Sprintf("The consumer, process %d, catches up: %s to go.", f.PID,
			many(f.Lag, "message", "messages")), false
	}
	text = fmt.Sprintf("The consumer, process %d, takes %s messages a second.", f.PID, commas(int64(f.Rate)))
	if f.Crashes == 0 {
		text += " Kill it, and look at the balance."
	}
	return text, false
}

// many is a number with its noun.
func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return commas(n) + " " + more
}
