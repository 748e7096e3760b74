#!/bin/sh
# Posts a notice about an approval request to a Slack channel through an incoming
# webhook. approvals.notify.command: [/path/to/slack.sh, /path/to/webhook-address]
#
# Needs jq. The notice has no word of the message, and cannot approve.
webhook=$(cat "${1:?want the file with the webhooks address}") || exit 1
jq -n --arg title "$OCIPD_NOTICE_TITLE" --arg body "$OCIPD_NOTICE_BODY" '{text: "*\($title)*\n```\($body)```"}' |
  curl -fsS -m 8 -o /dev/null -H 'Content-Type: application/json' -d @- "$webhook"
