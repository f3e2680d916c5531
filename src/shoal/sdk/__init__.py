"""
The Python face of Shoal, with the same nouns as the command line and the API:

    from shoal.sdk import Client

    client = Client()                                     # the local server, or $SHOAL_URL and $SHOAL_TOKEN
    job = client.submit(run="torchrun train.py", nodes=2, gpus=4)
    for line in job.logs():
        print(line)
    print(job.wait().state, job.exit_code)
"""

from shoal.sdk.client import Client
from shoal.sdk.job import Job, JobFailed

__all__ = ["Client", "Job", "JobFailed"]
