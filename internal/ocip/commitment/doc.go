// Package commitment finds text in a message with which the sender binds somebody to something.
//
// A [Detector] looks for the thirteen keywords of the OCIP reference. It finds them like the
// reference's literal match, except inside another word (facebook, committee). It finds every
// inflected form and the usual disguises: zero-width characters, look-alike letters of any script,
// markup and links inside a word, spaced-out letters, a word in pieces, backwards, upside down,
// escapes by number. It also finds them after the escapes of JSON (\nconfirm), in a name
// (pleaseConfirm), between terminal sequences for colour, and in text that is encoded in base64 or
// hexadecimal digits. In addition it looks for families of cues, which promise without any keyword:
// "I'll send it by Friday", "works for me", "we can pay $500". The thirteen keywords cannot be
// switched off. A family can be switched off, or put in shadow: it is then reported and asks
// nobody.
//
//	d, err := commitment.New(commitment.Options{})
//	hits := d.Scan(passages, text.RenderIRC)
//	result := commitment.Judge(hits)
//
// Detecting is pure: no clock, no file, no state between calls, one Detector for any number of
// goroutines. It takes time linear in any text: there is no backtracking beyond the length of one
// word.
//
// The caller must detect on the final bytes, after everything else that may change the message. It
// must hold the message if [CommitmentDetectionResult] says that a person is required. It must
// bound the hits in its records, since a long text can contain thousands (see [Digest]). The flags
// of the envelope, requires_commitment and human-only, are the caller's to weigh.
//
// A text with unusual spellings is scanned once more as it reads, for the cues and for keywords
// glued to other letters.
//
// Limits: the detector does not find words in languages without a list, in an invented alphabet, or
// in pictures.
//
// Source: OCIP protocol reference (seed 000), Commitment Detection.
package commitment
