// Package term has the look of terminal output: tables, folded and coloured text, and foreign text
// with every invisible character spelled out.
//
// [ScreenOf] describes an output: a terminal of some width, or a program. A [Table] fits its rows
// into a terminal, never cuts ids, and gives a program all of them. A [Page] is text line by line.
//
// Text from messages or clients is written only by [Printable], [Visible], or a method of Page that
// accepts foreign text. They spell out characters that steer the terminal, turn the text around or
// do not show.
package term
