// Package measure measures the detectors on texts that people have judged: how many they
// hold, how many of those rightly, how many they find and miss, and how many decisions
// people have to make.
//
//	texts, err := measure.Read(file)
//	seen := rules.Look(texts, nil)
//	report := measure.Commitments(seen)
//
// All functions are pure. A share has its bounds at 95 % confidence, so that nobody takes a
// difference of two texts for progress.
//
// A report quotes its texts, which may be other people's; the caller has to protect it.
package measure
