// Package measure says how well the detectors do on texts that people have
// judged: how many they hold, how many of those rightly, how much they find,
// which they miss, and how many decisions people are asked for.
//
//	texts, err := measure.Read(file)
//	seen := rules.Look(texts, nil)
//	report := measure.Commitments(seen)
//
// Everything is pure. A share says between which bounds it lies at 95 %
// confidence, so that a difference of two texts is not taken for progress.
//
// The caller's duty: a report quotes the texts it was made of, which may be
// other people's.
package measure
