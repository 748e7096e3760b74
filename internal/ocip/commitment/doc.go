// Package commitment sees, in the text of a message, that its sender binds
// somebody to something.
//
// A [Detector] looks for the thirteen keywords of the OCIP reference wherever
// the reference's literal match finds them but inside another word (facebook,
// committee), in every inflected form and under the usual disguises (zero-width
// characters, look-alike letters of any script, markup and links inside a word,
// spaced-out letters, a word in pieces, backwards, upside down, escapes by number),
// behind the escapes of JSON (\nconfirm), in a name (pleaseConfirm), between the sequences that colour a
// terminal, and in what stands in the text in base64 or hexadecimal digits, and on top of
// them for families of cues that carry a promise without any keyword: "I'll
// send it by Friday", "works for me", "we can pay $500". The thirteen cannot
// be switched off; a family can be, or can be put in the shadow, where it is
// reported and asks nobody.
//
//	d, err := commitment.New(commitment.Options{})
//	hits := d.Scan(passages, text.RenderIRC)
//	result := commitment.Judge(hits)
//
// Detecting is pure: no clock, no file, no state between calls, one Detector
// for any number of goroutines. It takes time linear in the text, whatever the
// text: there is no backtracking beyond the length of one word.
//
// The caller must detect on the final bytes, after whatever else may change
// the message; must hold the message if [CommitmentDetectionResult] says that
// a person is required; and must bound what it records, for a long text can
// hold thousands of hits (see [Digest]). The flags of the envelope,
// requires_commitment and human-only, are the caller's to weigh.
//
// A text in which something is written as people do not write it is looked at once
// more as it reads, for the cues and for what is glued to other letters.
//
// What is not seen: words in other
// languages than those it has lists of, in an alphabet that somebody made up, and
// text in pictures.
//
// Source: OCIP protocol reference (seed 000), Commitment Detection.
package commitment
