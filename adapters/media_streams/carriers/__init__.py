"""Media streams of carriers, jambonz and FreeSWITCH: one dialect a file, webhooks' answers and signatures."""
