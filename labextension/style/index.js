import "./base.css";
import "./job.css";
import "./table.css";
