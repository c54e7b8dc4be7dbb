/* html_style.h - how report.html looks: light and dark as the reader's system says, from 400 px of width up.
 *
 * The classes of charts and bars (tr training, ev evaluation, av averaged weights, rf reference, fi single steps, p0 to p3 parts
 * of a bar) mean the same all over the page. Part of html_report.c. */
#ifndef FSHARD_TRAINER_REPORT_HTML_STYLE_H
#define FSHARD_TRAINER_REPORT_HTML_STYLE_H

#include <stddef.h>

/* Three strings, since C promises 4095 bytes of one. */
/* clang-format off */
static const char *const html_style[] = {
    /* colours and text */
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--mute:#60646c;--line:#e2e4e8;--card:#f7f8fa;"
    "--tr:#2563eb;--ev:#d9480f;--av:#0a8f63;--rf:#7a7f87;--ok:#18794e;--bad:#c62a2f;--p3:#a7adb5}"
    "@media(prefers-color-scheme:dark){:root{--bg:#111316;--fg:#e8eaed;--mute:#9ba1a9;--line:#2c3036;"
    "--card:#1a1d21;--tr:#6ea8fe;--ev:#ff9f5a;--av:#4cc38a;--rf:#8b9199;--ok:#4cc38a;--bad:#ff7b72;"
    "--p3:#5a6069}}*{box-sizing:border-box}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1240px;padding:1.5em 1.2em 4em;"
    "color:var(--fg);background:var(--bg)}"
    "h1{margin:0;font-size:1.7em;overflow-wrap:anywhere}h2{margin:2em 0 .6em;font-size:1.25em}"
    "h3{margin:0;font-size:1em}small,.note,.sub{color:var(--mute)}"
    "small{font-weight:normal}.note{margin:.2em 0 .8em}.sub{margin:.1em 0 1.2em}"
    ".verdict{border-left:4px solid var(--ev);background:var(--card);padding:.6em 1em;margin:1em 0}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}"
    ".tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7em 1em}"
    ".tiles b{display:block;font-size:1.5em;line-height:1.25;white-space:nowrap}"
    ".tiles span{color:var(--mute);font-size:13px}",
    /* charts and tables */
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:14px}"
    "figure{margin:0}"
    ".chart{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7em .8em .3em}"
    ".legend{margin:.1em 0 .3em;font-size:13px;color:var(--mute);display:flex;flex-wrap:wrap;gap:0 1.1em;"
    "align-items:center}.legend b{color:var(--fg)}"
    ".legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;vertical-align:-1px}"
    "svg{width:100%;display:block}"
    "svg text{font:12px system-ui,sans-serif;fill:var(--mute)}.grid{stroke:var(--line)}"
    "path{fill:none;stroke-width:2;stroke-linejoin:round}path.tr{stroke:var(--tr)}"
    "path.ev{stroke:var(--ev)}path.av{stroke:var(--av)}"
    "path.rf{stroke:var(--rf);stroke-dasharray:6 4}"
    "path.fi{stroke:var(--tr);stroke-width:1;opacity:.45}circle.tr{fill:var(--tr)}"
    "circle.ev{fill:var(--ev)}circle.av{fill:var(--av)}i.tr,i.p0{background:var(--tr)}"
    "i.ev,i.p1{background:var(--ev)}i.av,i.p2{background:var(--av)}"
    "i.rf{background:var(--rf)}i.fi{background:var(--tr);opacity:.45}"
    "i.p3{background:var(--p3)}.p0{fill:var(--tr)}.p1{fill:var(--ev)}"
    ".p2{fill:var(--av)}.p3{fill:var(--p3)}"
    ".bar{height:44px;border-radius:6px;margin:1em 0 .9em}.bar+.legend{display:block;font-size:14px}"
    ".bar+.legend span{display:block;margin:.35em 0}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:14px}"
    "th,td{text-align:left;padding:.25em 1.1em .25em 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere}"
    "th{color:var(--mute);font-weight:600}"
    ".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".wide th{white-space:nowrap}"
    "tr.best td{background:var(--card);font-weight:600}",
    /* findings */
    ".columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:1.6em 2.4em;"
    "margin-top:1.2em}.columns h3{margin-bottom:.3em}.columns table{width:100%}"
    ".facts td:first-child{color:var(--mute);width:38%}.field{fill:var(--card)}"
    ".hit{fill:var(--av)}.miss{fill:var(--bad)}.matrix text.off{fill:var(--fg)}"
    ".matrix text.on{fill:var(--bg);font-weight:600}"
    ".sheet{display:grid;grid-template-columns:repeat(auto-fill,minmax(128px,1fr));gap:16px 14px;font-size:13px}"
    ".sheet figure{min-width:0}"
    ".sheet img{width:128px;height:128px;max-width:100%;object-fit:contain;background:var(--card);"
    "border-radius:6px;display:block;image-rendering:pixelated}"
    "em{font-style:normal;font-weight:600;color:var(--bad)}"
    ".key{color:var(--mute);font-size:12px;overflow-wrap:anywhere}"
    ".bad{color:var(--bad)}.ok{color:var(--ok)}"
    ".tag{background:var(--card);border:1px solid var(--line);border-radius:9px;padding:0 .6em;font-size:12px}"
    ".triplets{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:20px}"
    ".sides{display:grid;grid-template-columns:repeat(3,1fr);gap:6px}"
    ".sides img{width:100%;height:auto;display:block;border-radius:5px}"
    ".triplet figcaption{margin-top:.2em;font-size:14px}"
    "details summary{cursor:pointer;color:var(--mute)}"
    "@media(max-width:520px){.chart svg text{font-size:15px}}",
    NULL,
};
/* clang-format on */

#endif
