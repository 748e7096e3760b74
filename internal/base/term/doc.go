// Package term is how things look on a terminal: tables, folded and coloured text,
// and foreign text of which nothing is hidden.
//
// [ScreenOf] says what an output is: a terminal of some width, or a program. A
// [Table] fits its rows into a terminal, never cuts ids, and gives a program all of
// them. A [Page] is text line by line.
//
// What came from messages or clients is written by [Printable], [Visible], or a
// method of Page that says it takes foreign text, and by nothing else: characters
// that steer the terminal, turn the text around or do not show are spelled out.
package term
