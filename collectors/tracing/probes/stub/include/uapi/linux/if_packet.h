/* bcc includes it; nothing of it is used */
