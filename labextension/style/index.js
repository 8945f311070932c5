import "./acts.css";
import "./base.css";
import "./job.css";
import "./table.css";
