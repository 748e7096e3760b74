package page_test

import (
	"fmt"
	"strings"
)

// hostile are texts of others that try to be more than text: markup, templates, addresses, characters
// that steer, hide or turn what is around them, and very long ones.
func hostile() []string {
	var list []string
	const call = "fetch('/stolen')"
	for _, markup := range []string{
		`<script>%s</script>`, `</script><script>%s</script>`, `<img src=/stolen onerror="%s">`, `<svg onload="%s">`, `<svg><script>%s</script></svg>`, `"><img src=/stolen onerror=%s>`,
		`'><svg/onload=%s>`, `<iframe src="/stolen"></iframe>`, `<iframe srcdoc="<script>%s</script>">`, `<object data=/stolen>`, `<embed src=/stolen>`, `<link rel=stylesheet href=/stolen>`,
		`<style>@import '/stolen';*{display:none}</style>`, `<base href="//stolen/">`, `<meta http-equiv=refresh content="0;url=/stolen">`, `<form action=/stolen><input name=a autofocus onfocus=%s>`,
		`<a href="javascript:%s">click</a>`, `<details open ontoggle=%s>`, `<video src=/stolen onerror=%s>`, `<audio src=/stolen onerror=%s>`, `<math><mtext><img src=/stolen onerror=%s>`, `<template><img src=/stolen></template>`,
		`<noscript><img src=/stolen></noscript>`, `<xmp><img src=/stolen>`, `<textarea><img src=/stolen onerror=%s></textarea>`, `<!--><img src=/stolen onerror=%s>-->`, `<![CDATA[<img src=/stolen>]]>`, `<button popovertarget=x onclick=%s>x</button>`,
		`<dialog open>Decided</dialog>`, `<body onload=%s>`, `<input type=image src=/stolen>`, `<img srcset="/stolen 1x">`, `<picture><source srcset=/stolen><img></picture>`, `<p style="background:url(/stolen)">x`,
		`<p style="position:fixed;inset:0;z-index:9">x`, `<portal src=/stolen>`, `<frameset onload=%s>`, `<bdo dir=rtl>lartuen</bdo>`, `<marquee onstart=%s>`, `<isindex action=/stolen>`,
	} {
		if strings.Contains(markup, "%s") {
			markup = fmt.Sprintf(markup, call)
		}
		list = append(list, markup)
	}
	list = append(list,
		"${"+call+"}", "{{"+call+"}}", "{%"+call+"%}", "<%="+call+"%>", "#{"+call+"}", "`${"+call+"}`", "');"+call+"//", `");`+call+"//", "javascript:"+call, "data:text/html,<script>"+call+"</script>",
		"//stolen/x", "http://stolen.example/x", "file:///etc/passwd", "vbscript:x", "blob:null/x", "#/waiting/x", "/#code", "?after=0", "../../stolen", `\\stolen\x`,
		"__proto__", "constructor", "toString", "hasOwnProperty", "null", "undefined", "NaN", "[object Object]", "true", "0", "-1", "1e999", "",
		`{"__proto__":{"x":1}}`, `{"dangerouslySetInnerHTML":{"__html":"<img src=/stolen>"}}`, `{"type":"img","props":{"src":"/stolen"}}`, `["img",{"src":"/stolen"}]`, `{"kind":"caught"}`, "\n{\"kind\":\"gone\"}\n",
		"allow", "deny", "require_approval", "pending", "approve", "v-allow", "on", "hide", "display:none", "class=hide", "✓ checked in this browser", "✓ approved", "‹U+202E›", "‹tab›", "‹", "›",
	)
	for _, r := range []rune{
		0, 1, 7, 8, 9, 0xa, 0xb, 0xc, 0xd, 0x1b, 0x7f, 0x80, 0x85, 0x9b, 0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x1680, 0x17b4, 0x180b, 0x180e, 0x2000, 0x2003, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f,
		0x2028, 0x2029, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x202f, 0x205f, 0x2060, 0x2061, 0x2062, 0x2066, 0x2067, 0x2068, 0x2069, 0x206a, 0x206f, 0x2800, 0x3000, 0x3164, 0xe000, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfff9,
		0xfffb, 0xfffc, 0xfffd, 0x2001, 0x2002, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x206b, 0x206c, 0x206d, 0x206e, 0xfe01, 0xfe08, 0xfe0e, 0x180f, 0x17b5, 0x13441, 0x16fe4, 0x1d159, 0x1d173, 0xe0001, 0xe0020, 0xe0041, 0xe007f, 0xe0100, 0xf0000, 0x10fffd,
	} {
		list = append(list, fmt.Sprintf("pay %cEVE%c now", r, r))
	}
	list = append(list,
		"e"+strings.Repeat("\u0301", 40), strings.Repeat("\u0489", 60)+"x", "\u0301first", "ه\u064bربي اليمين", "\u202eכל הכבוד\u202c", "\U0001f469\u200d\U0001f4bb", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\r\nHTTP/1.1 200\r\n",
		strings.Repeat("x", 1<<20), strings.Repeat("<b>", 1<<16), strings.Repeat("\u202e", 1<<12), strings.Repeat("word ", 1<<15), strings.Repeat("\n", 1<<12), strings.Repeat("\u0645", 1<<12),
	)
	return list
}
